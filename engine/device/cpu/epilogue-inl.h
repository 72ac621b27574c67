// From the float32 sums of a register tile, in L1, to memory. After math-inl.h.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// Floats from one row of a sum tile to the next: the two blocks of a panel.
inline constexpr int64_t kTileStride = kPanelBlocks * kBlockN;

// Rows row0 … row0 + m of the block at output `block * 16`; sums: [m][kTileStride], `nb` blocks of a panel.
inline void ApplyEpilogue(const Epilogue& e, const float* sums, int64_t row0, int64_t m, int64_t block, int64_t nb) {
  const int64_t out_size = e.out_element == Element::kF32 ? 4 : 2;
  for (int64_t i = 0; i < m; ++i) {
    char* row = e.out + (row0 + i) * e.out_stride_bytes;
    const float* sum = sums + i * kTileStride;
    if (e.kind == EpilogueKind::kGated) {
      const int64_t col = block / kPanelBlocks * kBlockN;
      V gate = Load(sum);
      V up = Load(sum + kBlockN);
      if (e.bias != nullptr) {
        const int64_t n = e.cols - col < kBlockN ? e.cols - col : kBlockN;
        gate = Add(gate, LoadUpTo16(e.bias + col, n));
        up = Add(up, LoadUpTo16(e.up_bias + col, n));
      }
      V h = ActivateGated(e.activation, e.limit, e.alpha, gate, up);
      if (e.round_bf16) h = RoundToBf16(h);
      StoreAct(e.out_element, row, col, h, kBlockN);
      continue;
    }
    for (int64_t j = 0; j < nb; ++j) {
      const int64_t col = (block + j) * kBlockN;
      V x = Load(sum + j * kBlockN);
      if (e.kind == EpilogueKind::kActivation) {
        if (e.bias != nullptr) x = Add(x, LoadUpTo16(e.bias + col, e.cols - col < kBlockN ? e.cols - col : kBlockN));
        x = Activate(e.activation, x);
        if (e.round_bf16) x = RoundToBf16(x);
        StoreAct(e.out_element, row, col, x, kBlockN);
        continue;
      }
      const int64_t n = e.cols - col < kBlockN ? e.cols - col : kBlockN;
      if (n <= 0) continue;
      if (e.bias != nullptr) x = Add(x, LoadUpTo16(e.bias + col, n));
      if (e.accumulate) x = Add(LoadUpTo16(reinterpret_cast<const float*>(row + col * out_size), n), x);
      StoreAct(e.out_element, row, col, x, n);
    }
  }
}

// How far before use weights are fetched into L2. Memory answers after 100–200 ns under load, in which a thread at 30
// GB/s consumes 3–6 KB; farther costs nothing in an ascending stream. Into L2, not L1: fetching into L1 would hold one
// of its two dozen miss buffers per line for the whole latency.
inline constexpr int64_t kPrefetchBytes = 16384;

// Runs Micro over all rows and blocks: panels outside, so that a panel's weights are read once from memory and stay in
// L2 for the other rows. Micro::Run(rows, nb, a, stride, w, k_granules, ahead, sums) sums 1 … kMaxRows rows × nb
// blocks.
template <class Micro>
void RunGemmBlock(const GemmBlock& b) {
  alignas(64) float sums[Micro::kMaxRows * kTileStride];
  // Equal steps: 13 rows are 7 + 6, not 12 + 1.
  const int64_t passes = (b.rows + Micro::kMaxRows - 1) / Micro::kMaxRows;
  const int64_t step = passes > 0 ? (b.rows + passes - 1) / passes : 1;
  const char* w = b.w;
  for (int64_t block = 0; block < b.blocks; block += kPanelBlocks) {
    const int64_t nb = b.blocks - block < kPanelBlocks ? b.blocks - block : kPanelBlocks;
    const int64_t panel_bytes = nb * b.k_granules * Micro::kGranuleBytes;
    for (int64_t row = 0; row < b.rows; row += step) {
      const int64_t m = b.rows - row < step ? b.rows - row : step;
      // The first pass reads the panel from memory; the second fetches the next panel while it computes.
      const int64_t ahead = row == 0 ? kPrefetchBytes : row == step ? panel_bytes : 0;
      Micro::Run(m, nb, b.a + row * b.a_stride_bytes, b.a_stride_bytes, w, b.k_granules, ahead, sums);
      ApplyEpilogue(b.epilogue, sums, row, m, block, nb);
    }
    w += panel_bytes;
  }
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
