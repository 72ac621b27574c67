// Backend: the kernels of one kind of device behind coarse operations (ops.h). One object serves one rank; it owns its
// scratch memory, so its operations are called from one thread at a time. Packed weights are shared between the
// backends of a process that have the same name().
//
// Implementations: reference (scalar, written to be read, the oracle), cpu (vectorised).
#ifndef MOE_ENGINE_DEVICE_BACKEND_H_
#define MOE_ENGINE_DEVICE_BACKEND_H_

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/device/ops.h"
#include "engine/device/packed_cache.h"
#include "parallel/base/status.h"
#include "parallel/worker_pool.h"

namespace moe {

class Backend {
 public:
  virtual ~Backend() = default;

  // "reference", "cpu-amx", "cpu-avx512bf16", "cpu-avx512", "cpu-avx2".
  virtual std::string name() const = 0;

  // kBF16 or kF32. Of rows entering GEMMs, of K/V and of what ranks exchange.
  virtual DType act_dtype() const = 0;

  // Packs the rows of `parts`, one below the other, as one matrix of `format` (kF32, kBF16 or kF16; from a wider source
  // the value is rounded to nearest even, which only an explicit --dtype asks for). All parts have the same cols.
  virtual std::unique_ptr<PackedMatrix> Pack(std::span<const WeightSource> parts, DType format) = 0;

  // Packs experts of one shape. `release(i)`, if set, is called as soon as the sources of expert i are not needed.
  virtual std::unique_ptr<PackedExperts> PackExperts(std::span<const ExpertSource> experts, bool gated, DType format,
                                                     const std::function<void(int64_t)>& release) = 0;

  // Packs the weights of an expert that the set does not hold, or, with null, lets go of one that it holds. Other
  // threads may compute with other experts of the set meanwhile. Not for sets in a PackedCache.
  virtual void SetExpert(PackedExperts* experts, int64_t expert, const ExpertSource* source) = 0;

  // From now on Pack and PackExperts take their memory from `cache` (which outlives what they make; null: none) and do
  // not pack what it holds already. Devices that keep no packed weights in host memory ignore it.
  virtual void UsePackedCache(PackedCache* cache) { (void)cache; }
  // Says how weights are packed, for PackedCache's identity; empty: UsePackedCache does nothing.
  virtual std::string PackedLayout() const { return {}; }

  virtual void Embed(const EmbedOp& op) = 0;
  virtual void Norm(const NormOp& op) = 0;
  virtual void Round(const RoundOp& op) = 0;
  virtual void Gemm(const GemmOp& op) = 0;
  virtual void Route(const RouteOp& op) = 0;
  virtual void Experts(const ExpertsOp& op) = 0;
  virtual void Combine(const CombineOp& op) = 0;
  virtual void AddRows(const AddRowsOp& op) = 0;
  virtual void Qkv(const QkvOp& op) = 0;
  virtual void Attention(const AttentionOp& op) = 0;
  virtual void Mamba2(const Mamba2Op& op) = 0;

  // PortableBackend (portable/) has one implementation of these for all processors.
  virtual void Gate(const GateOp& op) = 0;
  virtual void MlaKeys(const MlaKeysOp& op) = 0;
  virtual void MlaQueries(const MlaQueriesOp& op) = 0;
  virtual void Indexer(const IndexerOp& op) = 0;
  virtual void BlockIndexer(const BlockIndexerOp& op) = 0;
  virtual void StreamGate(const StreamGateOp& op) = 0;
  virtual void CompressedKeys(const CompressedKeysOp& op) = 0;
  virtual void CompressedIndex(const CompressedIndexOp& op) = 0;
  virtual void CompressedAttention(const CompressedAttentionOp& op) = 0;
  virtual void HyperRead(const HyperReadOp& op) = 0;
  virtual void HyperWrite(const HyperWriteOp& op) = 0;
  virtual void Window(const WindowOp& op) = 0;
  virtual void Unfold(const UnfoldOp& op) = 0;
  virtual void Cca(const CcaOp& op) = 0;
  virtual void GroupedGemm(const GroupedGemmOp& op) = 0;
  virtual void Activate(const ActivateOp& op) = 0;
  virtual void SinkWeights(const SinkWeightsOp& op) = 0;
  virtual void Affine(const AffineOp& op) = 0;
  virtual void Conv(const ConvOp& op) = 0;
  virtual void GatedDelta(const GatedDeltaOp& op) = 0;
  virtual void Mamba1(const Mamba1Op& op) = 0;
  virtual void Lightning(const LightningOp& op) = 0;

  virtual void LogitStats(const LogitStatsOp& op) = 0;
};

// The oracle. `act`: kBF16 or kF32.
std::unique_ptr<Backend> CreateReferenceBackend(DType act);

// The instruction-set paths of the cpu backend, best first.
enum class CpuIsa { kAmx, kAvx512Bf16, kAvx512, kAvx2 };
const char* CpuIsaName(CpuIsa isa);  // "amx", "avx512bf16", "avx512", "avx2"
bool CpuIsaAvailable(CpuIsa isa);    // by feature bits and, for AMX, the system's permission

// `isa`: "auto" or a name above; one that this processor lacks is an error that says what it has. The pool outlives
// the backend.
StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const std::string& isa, DType act, WorkerPool* pool);

}  // namespace moe

#endif  // MOE_ENGINE_DEVICE_BACKEND_H_
