#include "loaders/tensor_rules.h"

#include <gtest/gtest.h>

#include <cmath>

namespace moe {
namespace {

// out[r][c] of `need` in a stored tensor whose element k has the value k.
std::vector<int64_t> Read(const TensorNeed& need, const StoredLayout& layout, int64_t expert = -1) {
  const StoredView view = ViewOf(need, layout, expert);
  std::vector<int64_t> values;
  for (int64_t r = 0; r < need.rows; ++r) {
    for (int64_t c = 0; c < need.cols; ++c) values.push_back(view.offset + r * view.row_stride + c * view.col_stride);
  }
  return values;
}

using Shape = std::vector<int64_t>;
const TensorNeed kNeed{"x", 2, 3, false};

TEST(StoredLayoutTest, Plain) {
  EXPECT_EQ(StoredShape(kNeed, Plain()), (Shape{2, 3}));
  EXPECT_EQ(Read(kNeed, Plain()), (Shape{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(StoredShape({"v", 5, 1, true}, Plain()), (Shape{5}));
}

TEST(StoredLayoutTest, Transposed) {
  EXPECT_EQ(StoredShape(kNeed, Plain().Transposed()), (Shape{3, 2}));
  EXPECT_EQ(Read(kNeed, Plain().Transposed()), (Shape{0, 2, 4, 1, 3, 5}));
}

TEST(StoredLayoutTest, Stacked) {
  EXPECT_EQ(StoredShape(kNeed, Stacked(4)), (Shape{4, 2, 3}));
  EXPECT_EQ(Read(kNeed, Stacked(4), 2), (Shape{12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(StoredShape(kNeed, Stacked(4).Transposed()), (Shape{4, 3, 2}));
  EXPECT_EQ(Read(kNeed, Stacked(4).Transposed(), 1), (Shape{6, 8, 10, 7, 9, 11}));
}

// One of a stack that is not of experts: row 0 of ERNIE-VL's two biases.
TEST(StoredLayoutTest, OneOfAStack) {
  const TensorNeed bias{"v", 5, 1, true};
  EXPECT_EQ(StoredShape(bias, Stacked(2).At(0)), (Shape{2, 5}));
  EXPECT_EQ(Read(bias, Stacked(2).At(0)), (Shape{0, 1, 2, 3, 4}));
  EXPECT_EQ(Read(kNeed, Stacked(4).At(3)), (Shape{18, 19, 20, 21, 22, 23}));
}

// [E·rows, cols], as DBRX has it, and its transposed down projection [E·cols, rows].
TEST(StoredLayoutTest, FlatStacked) {
  EXPECT_EQ(StoredShape(kNeed, Stacked(4).Flat()), (Shape{8, 3}));
  EXPECT_EQ(Read(kNeed, Stacked(4).Flat(), 3), (Shape{18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(StoredShape(kNeed, Stacked(4).Flat().Transposed()), (Shape{12, 2}));
  EXPECT_EQ(Read(kNeed, Stacked(4).Flat().Transposed(), 1), (Shape{6, 8, 10, 7, 9, 11}));
}

// [E, 2·rows, cols], gate first.
TEST(StoredLayoutTest, FusedPacked) {
  EXPECT_EQ(StoredShape(kNeed, Stacked(2).Part(1, 2)), (Shape{2, 4, 3}));
  EXPECT_EQ(Read(kNeed, Stacked(2).Part(0, 2), 1), (Shape{12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(Read(kNeed, Stacked(2).Part(1, 2), 1), (Shape{18, 19, 20, 21, 22, 23}));
}

// [E, cols, 2·rows]: columns g0 g1 u0 u1, or g0 u0 g1 u1.
TEST(StoredLayoutTest, FusedTransposed) {
  const StoredLayout packed = Stacked(2).Part(1, 2).Transposed();
  EXPECT_EQ(StoredShape(kNeed, packed), (Shape{2, 3, 4}));
  EXPECT_EQ(Read(kNeed, packed, 0), (Shape{2, 6, 10, 3, 7, 11}));
  const StoredLayout interleaved = packed.Interleaved();
  EXPECT_EQ(StoredShape(kNeed, interleaved), (Shape{2, 3, 4}));
  EXPECT_EQ(Read(kNeed, interleaved, 0), (Shape{1, 5, 9, 3, 7, 11}));
  EXPECT_EQ(Read(kNeed, Stacked(2).Part(0, 2).Interleaved(), 0), (Shape{0, 1, 2, 6, 7, 8}));
  // Their biases: [E, 2·rows].
  const TensorNeed bias{"b", 2, 1, true};
  EXPECT_EQ(StoredShape(bias, Stacked(3).Part(1, 2).Interleaved()), (Shape{3, 4}));
  EXPECT_EQ(Read(bias, Stacked(3).Part(1, 2).Interleaved(), 2), (Shape{9, 11}));
}

// Fused q, k, v rows of different sizes.
TEST(StoredLayoutTest, RowSlice) {
  EXPECT_EQ(StoredShape(kNeed, RowSlice(4, 7)), (Shape{7, 3}));
  EXPECT_EQ(Read(kNeed, RowSlice(4, 7)), (Shape{12, 13, 14, 15, 16, 17}));
}

TEST(CanonicalNameTest, SplitsNumbers) {
  const CanonicalName name = ParseCanonicalName("layers.12.moe.experts.7.gate.bias");
  EXPECT_EQ(name.pattern, "layers.{l}.moe.experts.{e}.gate.bias");
  EXPECT_EQ(name.layer, 12);
  EXPECT_EQ(name.expert, 7);
  EXPECT_EQ(ParseCanonicalName("lm_head").pattern, "lm_head");
  EXPECT_EQ(ParseCanonicalName("lm_head").layer, -1);
  EXPECT_EQ(FillPattern("m.layers.{l}.experts.{e}.w1", 3, 45), "m.layers.3.experts.45.w1");
}

TEST(GlobTest, Matches) {
  EXPECT_TRUE(MatchesGlob("mtp.*", "mtp.layers.0.x"));
  EXPECT_FALSE(MatchesGlob("mtp.*", "model.mtp.layers"));
  EXPECT_TRUE(MatchesGlob("*.inv_freq", "a.b.inv_freq"));
  EXPECT_TRUE(MatchesGlob("*a*b*", "xxaxxbxx"));
  EXPECT_FALSE(MatchesGlob("model.layers.6.*", "model.layers.60.x"));
  EXPECT_TRUE(MatchesGlob("", ""));
  EXPECT_FALSE(MatchesGlob("", "x"));
  EXPECT_FALSE(MatchesGlob(std::string(50, '*') + "y", std::string(5000, 'x')));
}

// With equal sides only the declaration tells the orientation.
TEST(StoredLayoutTest, SquareExpertsFollowTheDeclaration) {
  constexpr int kSize = 4;
  const auto weight = [](int64_t n, double a, double b) { return static_cast<double>(n % 7 - 3) * a + b; };
  const double x[kSize] = {1.0, -2.0, 0.5, 3.0};
  const TensorNeed need{"w", kSize, kSize, false};
  const auto multiply = [&](const StoredLayout& layout, double a, double b, const double* in, double* out) {
    const StoredView view = ViewOf(need, layout, 1);
    for (int r = 0; r < kSize; ++r) {
      out[r] = 0;
      for (int c = 0; c < kSize; ++c) {
        out[r] += weight(view.offset + r * view.row_stride + c * view.col_stride, a, b) * in[c];
      }
    }
  };
  const auto expert = [&](const StoredLayout& down_layout, double* out) {
    double gate[kSize], up[kSize];
    multiply(Stacked(2).Part(0, 2), 0.1, 0, x, gate);
    multiply(Stacked(2).Part(1, 2), 0.1, 0, x, up);
    for (int i = 0; i < kSize; ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    multiply(down_layout, 0.05, 0.02, gate, out);
  };
  double out[kSize], transposed[kSize];
  expert(Stacked(2), out);
  expert(Stacked(2).Transposed(), transposed);
  const double expected[] = {-0.038073447, -0.028965803, -0.056986868, -0.0002466054};
  const double if_transposed[] = {0.074851222, 0.007684622, -0.011228795, -0.030142218};
  for (int i = 0; i < kSize; ++i) {
    EXPECT_NEAR(out[i], expected[i], 1e-5);
    EXPECT_NEAR(transposed[i], if_transposed[i], 1e-5);
  }
}

}  // namespace
}  // namespace moe
