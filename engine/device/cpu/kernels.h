// The border between the cpu backend's drivers (compiled for the baseline processor) and its kernels (compiled once per
// instruction set). Plain structs and function pointers only: a kernel file includes this header and <immintrin.h>, so
// that no inline function of a shared header is ever compiled with flags that another processor lacks and then picked
// by the linker for everybody.
#ifndef MOE_ENGINE_DEVICE_CPU_KERNELS_H_
#define MOE_ENGINE_DEVICE_CPU_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

namespace moe::cpu {

enum class Element : int { kF32, kBF16, kF16 };

// Packed weights. A *granule* is 16 outputs × 32 inputs:
//   bf16      [16 pairs of k][16 n][2]   1 KB: one AMX B tile, 16 operands of vdpbf16ps, or two FMA operands each
//   f16, f32  [32 k][16 n]               1 or 2 KB
// A *panel* is two blocks of 16 outputs, [K/32][2 blocks][granule], so that the two blocks a register tile works on are
// one ascending stream of memory; the last panel of an odd number of blocks has one. For gated experts the first block
// of a panel is 16 rows of gate, the second the same 16 rows of up. Padding (n to 16, k to 32) is zero.
inline constexpr int64_t kBlockN = 16;
inline constexpr int64_t kGranuleK = 32;
inline constexpr int64_t kPanelBlocks = 2;

// What happens to the float32 sums of a tile.
enum class EpilogueKind : int {
  kStore,       // + bias, + old value, to `out`
  kActivation,  // act(sum), 16 outputs per block
  kGated,       // act(gate) * up, 16 outputs per panel
};
enum class ActivationKind : int { kSilu, kGeluTanh, kGeluErf, kRelu2, kSwigluOai, kSwigluStep };

struct Epilogue {
  EpilogueKind kind = EpilogueKind::kStore;
  ActivationKind activation = ActivationKind::kSilu;
  Element out_element = Element::kF32;  // kF32 or kBF16
  bool round_bf16 = false;              // values are rounded to bf16 even where they are kept as float32
  bool accumulate = false;              // kStore to float32 only
  char* out = nullptr;                  // row 0, output 0 of the block
  int64_t out_stride_bytes = 0;
  const float* bias = nullptr;     // of output 0 of the block; of the gate where kGated
  const float* up_bias = nullptr;  // kGated: of output 0
  float limit = 0;                 // clamps gate and up; 0: none
  float alpha = 0;                 // kSwigluOai
  int64_t cols = 0;  // valid outputs from output 0 on. kStore writes those; the others whole blocks (padding: zeros)
};

// rows × (blocks * 16) sums over K. The order of a sum depends on the kernel alone, never on rows or blocks.
struct GemmBlock {
  const char* a = nullptr;  // rows of the kernel's A element, zero padded to k_granules * 32
  int64_t a_stride_bytes = 0;
  int64_t rows = 0;
  const char* w = nullptr;  // first granule of a panel
  int64_t k_granules = 0;
  int64_t blocks = 0;
  Epilogue epilogue;
};
using GemmFn = void (*)(const GemmBlock&);

struct NormArgs {
  const float* x = nullptr;
  int64_t dim = 0;
  bool layer = false;          // subtract the mean
  bool weight_offset = false;  // 1 + w
  float eps = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* out_f32 = nullptr;
  char* out_act = nullptr;
  Element act = Element::kF32;
};

struct CombineArgs {
  int64_t top_k = 0;
  int64_t dim = 0;
  Element slot_element = Element::kF32;
  const char* const* slots = nullptr;  // [top_k]
  const float* weights = nullptr;      // [top_k], or null: 1
  const float* bias = nullptr;         // [dim] or null
  float scale = 1;
  float* out_f32 = nullptr;  // added to
  char* out_act = nullptr;
  Element act = Element::kF32;
};

struct RowStats {
  int64_t argmax = 0;
  float max = 0;
  float sum_exp = 0;  // Σ exp(x - max)
};

// Attention of `count` rows at positions first_pos … of one sequence, for the query heads of one K/V head.
struct AttentionTile {
  const char* q = nullptr;  // row 0, first head of the group
  int64_t q_row_bytes = 0;
  char* out = nullptr;  // row 0, first head of the group
  int64_t out_row_bytes = 0;
  Element act = Element::kF32;
  int64_t count = 0;
  int64_t group = 0;  // query heads of this K/V head
  int64_t first_pos = 0;
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  float scale = 1;
  float logit_cap = 0;
  const float* score_scale = nullptr;  // [count], of the capped scores of each position, or null
  const float* sinks = nullptr;        // [group] or null
  // As AttentionOp has them; x of row 0, first head of the group, and floats from row to row.
  const float* relative = nullptr;
  int64_t relative_stride = 0;
  int64_t relative_dim = 0;
  int64_t relative_extent = 0;
  const float* relative_bias = nullptr;
  int64_t window = 0;
  int64_t chunk = 0;
  const int32_t* blocks = nullptr;
  const char* k = nullptr;    // this head in block 0
  const char* v = nullptr;    // null: a key's first v_head_dim dims are its value
  int64_t k_block_bytes = 0;  // from a block to the next
  int64_t v_block_bytes = 0;
  int64_t split_begin = 0;  // splits of kAttentionSplit blocks to work on
  int64_t split_end = 0;
  float* partials = nullptr;  // [split][count * group][v_head_dim rounded up to 16, + 16]; null: all splits are here
  float* scratch = nullptr;   // AttentionKernels::scratch_floats of them
};

// The attention of a path, for activations of one kind.
struct AttentionKernels {
  void (*attend)(const AttentionTile&) = nullptr;
  void (*merge)(const AttentionTile&) = nullptr;  // partials of splits [split_begin, split_end) → out
  // What a tile of up to `rows` query rows (positions × group) needs.
  int64_t (*scratch_floats)(int64_t rows, int64_t head_dim, int64_t v_head_dim) = nullptr;
};

// The sum over keys is cut at multiples of this many blocks (256 tokens), whatever the context, batch and threads: long
// enough that merging two partial sums costs a few percent, short enough that a long context feeds many threads.
inline constexpr int64_t kAttentionSplit = 8;
inline constexpr int64_t kAttentionBlock = 32;  // = kKvBlockTokens
// Query rows (positions × heads of a group) that share one pass over K and V.
inline constexpr int64_t kAttentionRows = 64;

// Longest convolution kernel and largest dilation: a channel's taps and window live in registers or on the stack.
constexpr int64_t kMaxConvKernel = 16;
constexpr int64_t kMaxConvDilation = 8;

struct ConvArgs {
  const float* x = nullptr;  // [count] rows of raw inputs, first channel
  int64_t x_stride = 0;      // of x and the gates
  int64_t count = 0;
  int64_t channels = 0;
  int64_t kernel = 0;
  int64_t dilation = 1;
  const float* weight = nullptr;  // [channels, kernel]
  const float* bias = nullptr;
  bool residual = false;  // the order of all this: ConvOp
  bool silu = false;
  const float* in_gate = nullptr;   // or null
  const float* out_gate = nullptr;  // or null
  float* state = nullptr;           // [channels, (kernel - 1) * dilation]
  float* out = nullptr;             // or null; may be x
  int64_t out_stride = 0;
  char* out_act = nullptr;  // or null
  int64_t out_act_row_bytes = 0;
  Element act = Element::kF32;
};

struct ScanArgs {
  int64_t count = 0;
  int64_t head_dim = 0;
  int64_t state_size = 0;
  const float* x = nullptr;  // [count] rows, this head's first channel
  const float* b = nullptr;
  const float* c = nullptr;
  int64_t x_stride = 0;          // of x, b, c
  const float* dt = nullptr;     // [count], `dt_stride` apart
  const float* decay = nullptr;  // [count], likewise
  int64_t dt_stride = 0;
  float d = 0;
  float* state = nullptr;  // [head_dim, state_size]
  float* y = nullptr;      // [count] rows
  int64_t y_stride = 0;
};

struct GatedNormArgs {
  float* y = nullptr;  // [dim], changed
  const float* z = nullptr;
  int64_t dim = 0;
  float eps = 0;
  const float* weight = nullptr;
  char* out = nullptr;
  Element act = Element::kF32;
};

// x = x · f(gate + bias), f a sigmoid or softplus, of a gate an element or one for all.
struct GateArgs {
  char* x = nullptr;  // [count], in and out
  Element act = Element::kF32;
  int64_t count = 0;
  const float* gate = nullptr;
  bool one_gate = false;
  bool softplus = false;
  float bias = 0;
};

// Columns of a gated delta state that a scan keeps in L1.
inline constexpr int64_t kDeltaColumns = 32;

// Some columns of one value head's state, over the positions of a slice.
struct DeltaArgs {
  int64_t count = 0;
  int64_t k_dim = 0;
  int64_t columns = 0;
  const float* q = nullptr;  // [count] rows [k_dim], normalised and scaled
  const float* k = nullptr;  // [count] rows [k_dim], normalised
  int64_t qk_stride = 0;
  const float* kq = nullptr;  // [count]: their product
  int64_t kq_stride = 0;
  const float* decay = nullptr;  // [count] rows of [k_dim] factors, or of one
  int64_t decay_stride = 0;
  bool decay_by_channel = false;
  const float* beta = nullptr;  // [count]
  int64_t beta_stride = 0;
  const float* v = nullptr;  // [count] rows [columns]
  int64_t v_stride = 0;
  float* state = nullptr;  // [k_dim] rows [columns]
  int64_t state_stride = 0;
  float* out = nullptr;  // [count] rows [columns]
  int64_t out_stride = 0;
  float* scratch = nullptr;  // [k_dim, kDeltaColumns + 16]
};

// q and k of one row and key head.
struct DeltaHeadArgs {
  const float* q = nullptr;
  const float* k = nullptr;
  int64_t dim = 0;
  float eps = 0;
  float q_scale = 1;
  float* q_out = nullptr;
  float* k_out = nullptr;
  float* kq = nullptr;
};

struct DeltaDecayArgs {
  const float* x = nullptr;  // [count]
  const float* bias = nullptr;
  const float* a_log = nullptr;  // [count], or one for all
  bool one_rate = false;
  int64_t count = 0;
  bool safe = false;  // exp(lower_bound · sigmoid(…))
  float lower_bound = 0;
  float* out = nullptr;
};

// Some columns of one head's state, over the positions of a slice.
struct LightningArgs {
  int64_t count = 0;
  int64_t dim = 0;
  int64_t column = 0;
  int64_t columns = 0;
  const float* q = nullptr;  // [count] rows [dim]
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t stride = 0;
  float keep = 1;
  float* state = nullptr;  // [dim, dim]
  float* out = nullptr;    // [count] rows [dim]
  int64_t out_stride = 0;
};

struct Mamba1Args {
  int64_t count = 0;
  int64_t channels = 0;
  int64_t state_size = 0;
  const float* x = nullptr;   // [count] rows [channels]
  const float* dt = nullptr;  // likewise, before softplus
  int64_t x_stride = 0;
  const float* z = nullptr;
  int64_t z_stride = 0;
  const float* b = nullptr;  // [count] rows [state_size]
  const float* c = nullptr;
  int64_t bc_stride = 0;
  const float* a_log = nullptr;  // [channels, state_size]
  const float* d = nullptr;      // [channels]
  float* state = nullptr;        // [channels, state_size]
  float* rate = nullptr;         // scratch, likewise
  char* out = nullptr;           // [count] rows [channels]
  int64_t out_row_bytes = 0;
  Element act = Element::kF32;
};

// Everything but the GEMMs. avx2 and avx512 give the same bits here: 16 lanes, the same operations.
struct OpKernels {
  void (*norm)(const NormArgs&);
  void (*widen)(const char* x, Element element, int64_t n, float scale, float* out);  // out = x * scale
  void (*round)(const float* x, int64_t n, char* out, Element act);
  void (*combine)(const CombineArgs&);
  void (*add_scaled)(float* dst, const float* src, float scale, int64_t n);
  void (*scale)(float* x, int64_t n, float factor);
  void (*clamp)(float* x, int64_t n, float limit);  // to ± limit
  void (*row_stats)(const float* x, int64_t n, RowStats* stats);
  float (*exp_sum)(const float* x, int64_t n, float shift, float* out);  // out = exp(x - shift); their sum
  void (*divide)(float* x, int64_t n, float divisor);
  void (*sigmoid)(float* x, int64_t n);
  void (*softplus_decay)(const float* raw, const float* bias, const float* a_log, int64_t n, float lo, float hi,
                         float* dt, float* decay);
  void (*rotate)(float* head, int64_t half, bool interleaved, const float* cos, const float* sin);
  AttentionKernels attention;  // products by float32 FMA
  void (*convolve)(const ConvArgs&);
  void (*scan)(const ScanArgs&);
  void (*gated_norm)(const GatedNormArgs&);
  void (*silu)(const float* x, int64_t n, float* out);
  // out = x · silu(gate) or x · sigmoid(gate), rounded.
  void (*gate)(const float* x, const float* gate, int64_t n, bool silu, char* out, Element act);
  void (*gate_in_place)(const GateArgs&);
  void (*delta_heads)(const DeltaHeadArgs&);
  void (*delta_decay)(const DeltaDecayArgs&);
  void (*gated_delta)(const DeltaArgs&);
  void (*lightning)(const LightningArgs&);
  void (*mamba1)(const Mamba1Args&);
};

// A GEMM kernel and the element its A rows must have.
struct GemmKernel {
  GemmFn run = nullptr;
  Element a_element = Element::kF32;
};

const OpKernels& Avx2Ops();
const OpKernels& Avx512Ops();
GemmFn Avx2Gemm(Element weights);        // A float32
GemmFn Avx512Gemm(Element weights);      // A float32
GemmFn Avx512Bf16Gemm();                 // A and weights bf16
GemmFn AmxGemm();                        // A and weights bf16
AttentionKernels Avx512Bf16Attention();  // act bf16
AttentionKernels AmxAttention();         // act bf16

}  // namespace moe::cpu

#endif  // MOE_ENGINE_DEVICE_CPU_KERNELS_H_
