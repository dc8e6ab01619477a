// Files of GPU measurements, whole and damaged.
#include "cli/calibrate/read_measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/calibrate/gpu_cluster.h"
#include "tests/support/damaged_text.h"

namespace trireme::cli {
namespace {

using program::OpKind;
using runtime::Exchange;
using runtime::GpuMeasurements;
using runtime::GpuStream;
using ::testing::AllOf;
using ::testing::HasSubstr;

// As few as make a cluster: a kernel needs as many sizes as its time has unknowns.
GpuMeasurements small() {
  GpuMeasurements m;
  m.date = "2026-11-21";
  m.version = "0.1.0";
  m.gpu = {"NVIDIA X900", 90, 132, 13000, int64_t{80} << 30, int64_t{79} << 30};
  m.numGpus = 2;
  m.launch = Seconds(2e-6);
  for (const int64_t size : {256, 512, 768, 1024, 2048, 4096})
    m.kernels.push_back({{OpKind::kMatmul, DType::kBf16, runtime::ProductShape{size, 1024, 512}},
                         Seconds(2e-6 + static_cast<double>(size) * 5e-9)});
  for (const int64_t size : {256, 512, 768, 1024, 2048, 4096})
    m.kernels.push_back(
        {{OpKind::kAttention, DType::kBf16, runtime::AttentionSizes{size, 1, 8, 64, 0.1, 4}},
         Seconds(2e-6 + static_cast<double>(size * size) * 1e-11)});
  for (const int64_t size : {256, 512, 768, 1024, 2048, 4096})
    m.kernels.push_back(
        {{OpKind::kMatmul, DType::kF32, runtime::ProductShape{size, 1024, 512}, true},
         Seconds(2e-6 + static_cast<double>(size) * 8e-9)});
  for (const GpuStream stream : runtime::kGpuStreams)
    m.streams.push_back({stream, Bytes(1e9), Seconds(1e-3)});
  for (const Exchange exchange : runtime::kMeasuredCollectives)
    for (const int64_t bytes : {1024, 4096})
      m.transfers.push_back({exchange, 2, bytes, Seconds(1e-5)});
  m.transfers.push_back({Exchange::kSend, 2, 4096, Seconds(1e-6)});
  return m;
}

const std::string kName = "gpus.json";

std::string errorOf(const std::string& text) {
  const auto read = parseMeasurements(text, kName);
  if (read.has_value()) return "";
  EXPECT_EQ(read.error().code(), StatusCode::kInvalidArgument);
  return read.error().message();
}

std::string errorOf(const std::function<void(GpuMeasurements&)>& change) {
  GpuMeasurements m = small();
  change(m);
  return errorOf(printMeasurements(m));
}

// The first occurrence.
std::string replacedInFile(const std::string& from, const std::string& to) {
  std::string text = printMeasurements(small());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ReadMeasurements, WhatIsWrittenIsRead) {
  const GpuMeasurements m = small();
  const auto read = parseMeasurements(printMeasurements(m), kName);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(*read, m);
  const auto cluster = clusterOf(m, {"x", nullptr});
  ASSERT_TRUE(cluster.has_value()) << cluster.error().message();
}

TEST(ReadMeasurements, RefusesOtherFormatsAndVersions) {
  EXPECT_THAT(errorOf(replacedInFile("trireme GPU measurements", "other")),
              AllOf(HasSubstr("gpus.json:2:"), HasSubstr("expected 'trireme GPU measurements'")));
  EXPECT_THAT(
      errorOf(replacedInFile("\"version\": 2", "\"version\": 1")),
      AllOf(HasSubstr("gpus.json:3:"), HasSubstr("version 1: this trireme reads version 2")));
  EXPECT_THAT(errorOf("{}"), HasSubstr("format, version: missing"));
}

TEST(ReadMeasurements, RefusesWhatIsTruncated) {
  const std::string whole = printMeasurements(small());
  for (size_t size = 0; size + 2 < whole.size(); size += 7)
    EXPECT_THAT(errorOf(whole.substr(0, size)), HasSubstr("gpus.json")) << size;
}

TEST(ReadMeasurements, RefusesUnknownAndMissingKeys) {
  EXPECT_THAT(
      errorOf(replacedInFile("\"numGpus\"", "\"numGpu\"")),
      AllOf(HasSubstr("gpus.json:7:"), HasSubstr("numGpu"), HasSubstr("did you mean 'numGpus'?")));
  EXPECT_THAT(errorOf(replacedInFile("\"tokens\"", "\"token\"")),
              HasSubstr("kernels[0]: unknown key 'token'; did you mean 'tokens'?"));
  EXPECT_THAT(errorOf(replacedInFile("  \"launchSeconds\": 2e-06,\n", "")),
              HasSubstr("launchSeconds: missing"));
  EXPECT_THAT(errorOf(replacedInFile("\"matmul\"", "\"gelu\"")),
              AllOf(HasSubstr("kernels[0].op"), HasSubstr("matmul_grad_input")));
}

TEST(ReadMeasurements, RefusesTimesAndSizesThatCannotBe) {
  const std::string aTime = "a call takes 1e-09 to 3600 s";
  EXPECT_THAT(errorOf([](auto& m) { m.launch = Seconds(-1); }),
              AllOf(HasSubstr("gpus.json:8:"), HasSubstr("launchSeconds: " + aTime)));
  EXPECT_THAT(errorOf([](auto& m) { m.kernels[1].time = Seconds(0); }),
              HasSubstr("kernels[1].seconds: " + aTime));
  EXPECT_THAT(errorOf([](auto& m) { m.streams[2].time = Seconds(-1e-3); }),
              HasSubstr("streams[2].seconds: " + aTime));
  EXPECT_THAT(errorOf([](auto& m) { m.transfers[3].time = Seconds(4000); }),
              HasSubstr("transfers[3].seconds: " + aTime));
  EXPECT_THAT(errorOf([](auto& m) { m.streams[0].moved = Bytes(-1); }),
              HasSubstr("streams[0].bytes: must be 1 .. "));
  EXPECT_THAT(errorOf([](auto& m) { m.gpu.totalBytes = 0; }),
              HasSubstr("gpu.totalBytes: must be 1 .. "));
  EXPECT_THAT(errorOf([](auto& m) { m.gpu.freeBytes = m.gpu.totalBytes + 1; }),
              AllOf(HasSubstr("gpus.json:6:"),
                    HasSubstr("gpu.freeBytes: must be at most totalBytes (85899345920)")));
  EXPECT_EQ(errorOf([](auto& m) { m.gpu.freeBytes = m.gpu.totalBytes; }), "");
  EXPECT_THAT(errorOf([](auto& m) { m.numGpus = 0; }), HasSubstr("numGpus: must be 1 .. "));
  EXPECT_THAT(
      errorOf([](auto& m) { m.kernels[0].probe.shape = runtime::ProductShape{1 << 21, 1, 1}; }),
      HasSubstr("kernels[0].tokens: must be 1 .. 1048576"));
  EXPECT_THAT(
      errorOf([](auto& m) { m.kernels[6].probe.shape = runtime::AttentionSizes{1, 1, 1, 1, 1.0}; }),
      HasSubstr("kernels[6].dropout: a probability"));
  EXPECT_THAT(errorOf([](auto& m) {
                m.kernels[6].probe.shape = runtime::AttentionSizes{1, 1, 8, 1, 0, 3};
              }),
              HasSubstr("kernels[6].headsPerGroup: must divide heads (8)"));
  EXPECT_THAT(errorOf([](auto& m) {
                m.kernels[6].probe.type = DType::kF32;
                m.kernels[6].probe.tf32 = true;
              }),
              HasSubstr("kernels[6].type: attention is in f64, f32, bf16 or f16"));
}

TEST(ReadMeasurements, RefusesWhatIsNotWhole) {
  EXPECT_THAT(errorOf([](auto& m) { m.kernels.clear(); }), HasSubstr("kernels: there is none"));
  EXPECT_THAT(errorOf([](auto& m) { m.kernels.resize(6); }),
              HasSubstr("kernels: no attention in bf16"));
  EXPECT_THAT(errorOf([](auto& m) { m.kernels[0].probe.type = DType::kF32; }),
              HasSubstr("kernels: no attention in f32"));
  const auto streams = HasSubstr("expected copy, sum of squares and AdamW");
  EXPECT_THAT(errorOf([](auto& m) { m.streams.pop_back(); }), streams);
  EXPECT_THAT(errorOf([](auto& m) { std::swap(m.streams[0], m.streams[1]); }), streams);
  EXPECT_THAT(
      errorOf([](auto& m) { m.transfers.erase(m.transfers.begin(), m.transfers.begin() + 2); }),
      HasSubstr("of 2 GPUs, expected all-reduce among 2 here"));
  EXPECT_THAT(errorOf([](auto& m) { m.transfers[1].bytes = 1024; }),
              HasSubstr("expected all-gather among 2 here, with sizes that increase"));
  EXPECT_THAT(errorOf([](auto& m) { m.transfers.pop_back(); }),
              HasSubstr("expected message among 2 here"));
  EXPECT_THAT(errorOf([](auto& m) { m.transfers.push_back(m.transfers.back()); }),
              HasSubstr("transfers[7]: of 2 GPUs, nothing more was expected here"));
  EXPECT_THAT(errorOf([](auto& m) { m.numGpus = 1; }),
              HasSubstr("transfers[0]: of 1 GPUs, nothing more was expected here"));
  EXPECT_THAT(errorOf([](auto& m) { m.numGpus = 4; }),
              HasSubstr("of 4 GPUs, expected all-reduce among 4 here"));
}

// Every damaged text gives measurements of which a cluster can be made or refused, or an error with
// the file's name.
void check(const std::string& text) {
  const auto read = parseMeasurements(text, kName);
  if (!read.has_value()) {
    EXPECT_EQ(read.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(read.error().message(), ::testing::StartsWith(kName));
    return;
  }
  for (const GpuMeasurements::Kernel& kernel : read->kernels) EXPECT_GT(kernel.time.count(), 0);
  const auto cluster = clusterOf(*read, {"x", nullptr});
  if (!cluster.has_value()) {
    EXPECT_EQ(cluster.error().code(), StatusCode::kInvalidArgument) << cluster.error().message();
    return;
  }
  for (const spec::PeakRate& peak : cluster->cluster.device.matmul)
    EXPECT_TRUE(std::isfinite(peak.rate.count()) && peak.rate.count() > 0) << text;
}

TEST(ReadMeasurementsFuzz, BytesAreChangedInsertedAndRemoved) {
  damageBytes(printMeasurements(small()), std::string("0123456789-+.eE:,[]{}\"\n\x00\x7f\xff", 27),
              5000, 4, check);
}

TEST(ReadMeasurementsFuzz, NumbersAreExtreme) {
  const char* const kNumbers[] = {"0",
                                  "-1",
                                  "1",
                                  "1e308",
                                  "1e-308",
                                  "1e-300",
                                  "nan",
                                  "null",
                                  "[]",
                                  "9223372036854775807",
                                  "18446744073709551616"};
  damageNumbers(printMeasurements(small()), kNumbers, check);
}

TEST(ReadMeasurementsFuzz, LinesAreLostSwappedAndRepeated) {
  damageLines(printMeasurements(small()), 3, check);
}

TEST(ReadMeasurementsFuzz, TheTextEndsEarly) { endEarly(printMeasurements(small()), 5, check); }

}  // namespace
}  // namespace trireme::cli
