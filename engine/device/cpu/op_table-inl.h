// The table of one instruction set's kernels. Last include of a kernel file.
namespace moe::cpu::MOE_CPU_NS {
namespace {

constexpr OpKernels kOps = {
    .norm = NormRow,
    .widen = WidenRow,
    .round = RoundRow,
    .combine = CombineRow,
    .add_scaled = AddScaledRow,
    .scale = ScaleRow,
    .clamp = ClampRow,
    .row_stats = RowStatsOf,
    .exp_sum = ExpSumRow,
    .divide = DivideRow,
    .sigmoid = SigmoidRow,
    .softplus_decay = SoftplusDecay,
    .rotate = RotateHead,
    .attention = {Attend, MergePartials, ScratchFloats},
    .convolve = ConvolveChannels,
    .scan = Scan,
    .gated_norm = GatedNorm,
    .silu = SiluRow,
    .gate = GateRow,
    .gate_in_place = GateInPlace,
    .delta_heads = DeltaHeads,
    .delta_decay = DeltaDecay,
    .gated_delta = GatedDelta,
    .lightning = Lightning,
    .mamba1 = Mamba1Scan,
};

}  // namespace
}  // namespace moe::cpu::MOE_CPU_NS
