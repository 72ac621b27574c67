// Causal depthwise convolutions. After math-inl.h.
//
// Per channel and position: s = bias, then one FMA chain over the taps, oldest first; + the input where residual; silu;
// gate. The window of the last raw inputs moves on with every position, so a slice may end anywhere.
namespace moe::cpu::MOE_CPU_NS {
namespace {

// What comes before and after the taps, for the n channels from c on at position i.
inline V ConvInput(const ConvArgs& a, int64_t i, int64_t c, int64_t n) {
  const V x = LoadUpTo16(a.x + i * a.x_stride + c, n);
  return a.in_gate == nullptr ? x : Mul(x, LoadUpTo16(a.in_gate + i * a.x_stride + c, n));
}
inline void ConvOutput(const ConvArgs& a, int64_t i, int64_t c, int64_t n, V x, V s) {
  if (a.residual) s = Add(s, x);
  if (a.silu) s = Silu(s);
  if (a.out_gate != nullptr) s = Mul(s, LoadUpTo16(a.out_gate + i * a.x_stride + c, n));
  if (a.out != nullptr) StoreUpTo16(a.out + i * a.out_stride + c, s, n);
  if (a.out_act != nullptr) StoreAct(a.act, a.out_act + i * a.out_act_row_bytes, c, s, n);
}

// Positions that 16 channels are taken through before the next 16: rows may be far apart in memory, and this many of
// them for all channels of a block stay in L1 and in the TLB.
inline constexpr int64_t kConvRows = 16;
inline constexpr int64_t kConvVectors = 16;

// Weights and window of up to 16 vectors of channels, kTaps former inputs of each.
template <int kTaps>
inline void ConvolveBlock(const ConvArgs& a, int64_t first, int64_t channels) {
  V weights[kConvVectors][kTaps + 1];
  V windows[kConvVectors][kTaps];
  const auto lanes_of = [&](int64_t v) { return channels - v * 16 < 16 ? channels - v * 16 : int64_t{16}; };
  const int64_t vectors = (channels + 15) / 16;
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t c = first + v * 16;
    for (int t = 0; t <= kTaps; ++t) weights[v][t] = GatherN(a.weight + c * (kTaps + 1) + t, kTaps + 1, lanes_of(v));
    for (int t = 0; t < kTaps; ++t) windows[v][t] = GatherN(a.state + c * kTaps + t, kTaps, lanes_of(v));
  }
  for (int64_t i0 = 0; i0 < a.count; i0 += kConvRows) {
    const int64_t i1 = a.count - i0 < kConvRows ? a.count : i0 + kConvRows;
    for (int64_t v = 0; v < vectors; ++v) {
      const int64_t c = first + v * 16;
      const int64_t n = lanes_of(v);
      const V bias = a.bias == nullptr ? Zero() : LoadUpTo16(a.bias + c, n);
      V window[kTaps + 1];
#pragma GCC unroll 4
      for (int t = 0; t < kTaps; ++t) window[t] = windows[v][t];
      for (int64_t i = i0; i < i1; ++i) {
        window[kTaps] = ConvInput(a, i, c, n);
        V s = bias;
#pragma GCC unroll 4
        for (int t = 0; t <= kTaps; ++t) s = Fma(weights[v][t], window[t], s);
        ConvOutput(a, i, c, n, window[kTaps], s);
#pragma GCC unroll 4
        for (int t = 0; t < kTaps; ++t) window[t] = window[t + 1];
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTaps; ++t) windows[v][t] = window[t];
    }
  }
  for (int64_t v = 0; v < vectors; ++v) {
    for (int t = 0; t < kTaps; ++t) {
      float lanes[16];
      Store(lanes, windows[v][t]);
      for (int64_t i = 0; i < lanes_of(v); ++i) a.state[(first + v * 16 + i) * kTaps + t] = lanes[i];
    }
  }
}

// 16 channels with any number of taps, `dilation` positions apart: the window is a ring.
inline void ConvolveAny(const ConvArgs& a, int64_t c, int64_t n) {
  const int64_t taps = a.kernel - 1;
  const int64_t past = taps * a.dilation;
  V weight[kMaxConvKernel];
  V window[(kMaxConvKernel - 1) * kMaxConvDilation];
  for (int64_t t = 0; t <= taps; ++t) weight[t] = GatherN(a.weight + c * a.kernel + t, a.kernel, n);
  for (int64_t t = 0; t < past; ++t) window[t] = GatherN(a.state + c * past + t, past, n);
  const V bias = a.bias == nullptr ? Zero() : LoadUpTo16(a.bias + c, n);
  int64_t oldest = 0;
  for (int64_t i = 0; i < a.count; ++i) {
    const V x = ConvInput(a, i, c, n);
    V s = bias;
    for (int64_t t = 0, at = oldest; t < taps; ++t) {
      s = Fma(weight[t], window[at], s);
      at += a.dilation;
      if (at >= past) at -= past;
    }
    s = Fma(weight[taps], x, s);
    ConvOutput(a, i, c, n, x, s);
    if (past > 0) window[oldest] = x;
    if (++oldest >= past) oldest = 0;
  }
  float lanes[16];
  for (int64_t t = 0; t < past; ++t) {
    Store(lanes, window[oldest]);
    for (int64_t i = 0; i < n; ++i) a.state[(c + i) * past + t] = lanes[i];
    if (++oldest >= past) oldest = 0;
  }
}

inline void ConvolveChannels(const ConvArgs& a) {
  constexpr int64_t kBlock = kConvVectors * 16;
  for (int64_t first = 0; first < a.channels; first += kBlock) {
    const int64_t channels = a.channels - first < kBlock ? a.channels - first : kBlock;
    if (a.dilation == 1 && a.kernel == 4) {
      ConvolveBlock<3>(a, first, channels);
    } else if (a.dilation == 1 && a.kernel == 3) {
      ConvolveBlock<2>(a, first, channels);
    } else {
      for (int64_t c = first; c < first + channels; c += 16) {
        ConvolveAny(a, c, first + channels - c < 16 ? first + channels - c : 16);
      }
    }
  }
}

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
