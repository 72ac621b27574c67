// Fields of config.json that say what a model computes in some families, found where the family does not read them.
#ifndef MOE_LOADERS_FOREIGN_FIELDS_H_
#define MOE_LOADERS_FOREIGN_FIELDS_H_

#include "loaders/config_reader.h"
#include "loaders/model_spec.h"

namespace moe {

// `config` has the text model's fields after the family's reader is done with them. A field like norm_topk_prob that
// the reader did not look at must say what `spec` does anyway, else UNSUPPORTED: a model that computes something else
// than its config says is not served. Fields whose contradiction would show in the tensors, which are matched strictly,
// may say what they like.
void CheckForeignFields(ConfigReader* config, const ModelSpec& spec);

}  // namespace moe

#endif  // MOE_LOADERS_FOREIGN_FIELDS_H_
