// Forcing an instruction set.
#include "tests/engine/device/device_test_util.h"

namespace moe::device_test {
namespace {

TEST(CpuIsaChoice, AutoTakesTheBestOneThereIs) {
  WorkerPool pool(1);
  auto backend = CreateCpuBackend("auto", DType::kBF16, &pool);
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->name(), Cat("cpu-", CpuIsaName(AvailableIsas().front())));
  EXPECT_EQ((*backend)->act_dtype(), DType::kBF16);
}

TEST(CpuIsaChoice, EachAvailableOneCanBeForced) {
  WorkerPool pool(1);
  for (CpuIsa isa : AvailableIsas()) {
    auto backend = CreateCpuBackend(CpuIsaName(isa), DType::kF32, &pool);
    ASSERT_TRUE(backend.ok());
    EXPECT_EQ((*backend)->name(), Cat("cpu-", CpuIsaName(isa)));
  }
}

TEST(CpuIsaChoice, AnAbsentOneIsAnErrorThatNamesWhatThereIs) {
  WorkerPool pool(1);
  for (CpuIsa isa : {CpuIsa::kAmx, CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2}) {
    if (CpuIsaAvailable(isa)) continue;
    const Status status = CreateCpuBackend(CpuIsaName(isa), DType::kBF16, &pool).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    const std::string message(status.message());
    EXPECT_NE(message.find(CpuIsaName(isa)), std::string::npos) << message;
    for (CpuIsa have : AvailableIsas()) EXPECT_NE(message.find(CpuIsaName(have)), std::string::npos) << message;
  }
}

TEST(CpuIsaChoice, AnUnknownNameIsAnError) {
  WorkerPool pool(1);
  const Status status = CreateCpuBackend("sse9", DType::kBF16, &pool).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("avx512bf16"), std::string::npos);
}

}  // namespace
}  // namespace moe::device_test
