// PortableBackend: operations in plain C++ that the backends of ordinary processors share. One implementation, written
// from the formula, is the scalar reference and what runs; a backend overrides those it has a faster kernel for.
//
// Everything works row by row, head by head or channel by channel in float32 and ascending order, so batch, chunks and
// threads change no bit.
#ifndef MOE_ENGINE_DEVICE_PORTABLE_PORTABLE_BACKEND_H_
#define MOE_ENGINE_DEVICE_PORTABLE_PORTABLE_BACKEND_H_

#include <functional>

#include "engine/device/backend.h"

namespace moe {

class PortableBackend : public Backend {
 public:
  void Gate(const GateOp& op) override;                                // gates.cc
  void MlaKeys(const MlaKeysOp& op) override;                          // latent_attention.cc
  void MlaQueries(const MlaQueriesOp& op) override;                    // latent_attention.cc
  void Indexer(const IndexerOp& op) override;                          // indexer.cc
  void BlockIndexer(const BlockIndexerOp& op) override;                // block_indexer.cc
  void StreamGate(const StreamGateOp& op) override;                    // gates.cc
  void CompressedKeys(const CompressedKeysOp& op) override;            // compressed_keys.cc
  void CompressedIndex(const CompressedIndexOp& op) override;          // compressed_attention.cc
  void CompressedAttention(const CompressedAttentionOp& op) override;  // compressed_attention.cc
  void HyperRead(const HyperReadOp& op) override;                      // hyper.cc
  void HyperWrite(const HyperWriteOp& op) override;                    // hyper.cc
  void Window(const WindowOp& op) override;                            // window.cc
  void Unfold(const UnfoldOp& op) override;                            // window.cc
  void Cca(const CcaOp& op) override;                                  // cca.cc
  void GroupedGemm(const GroupedGemmOp& op) override;                  // grouped_gemm.cc
  void Activate(const ActivateOp& op) override;                        // elementwise.cc
  void SinkWeights(const SinkWeightsOp& op) override;                  // elementwise.cc
  void Affine(const AffineOp& op) override;                            // elementwise.cc
  void Conv(const ConvOp& op) override;                                // convolution.cc
  void GatedDelta(const GatedDeltaOp& op) override;                    // gated_delta.cc
  void Mamba1(const Mamba1Op& op) override;                            // mamba1.cc
  void Lightning(const LightningOp& op) override;                      // lightning.cc

 protected:
  // fn(task) for each task in [0, count), in any order, on any threads. `work`: about how many multiply-adds in all.
  virtual void ForTasks(int64_t count, double work, const std::function<void(int64_t)>& fn) = 0;

  // One token's key or value in a block of one K/V head: the layout inside a block is the backend's own.
  virtual void StoreKey(const float* key, int64_t head_dim, int64_t token, std::byte* block) = 0;
  virtual void StoreValue(const float* value, int64_t v_head_dim, int64_t token, std::byte* block) = 0;
  virtual void LoadKey(const std::byte* block, int64_t head_dim, int64_t token, float* key) const = 0;
  virtual void LoadValue(const std::byte* block, int64_t v_head_dim, int64_t token, float* value) const = 0;

  // Attention whose keys are given one by one (AttentionOp::selection).
  void SelectedAttention(const AttentionOp& op);  // selected_attention.cc
};

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_PORTABLE_PORTABLE_BACKEND_H_
