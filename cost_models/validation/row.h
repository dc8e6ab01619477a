// One published measurement: a training run and the time of its step.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost_models/validation/csv.h"
#include "ir/base/status.h"

namespace trireme::cost {

// The cells of one record, under the names of their columns. An empty cell is unpublished: an empty
// text or nothing.
struct Row {
  std::string id, stack;
  bool scored = false;  // counts in the errors
  std::string source;
  std::optional<int64_t> year;
  std::string gpu;
  std::optional<int64_t> gpus, gpusPerNode;
  std::optional<double> interNodeGbpsPerGpu;  // Gbit/s, one direction
  std::string model;
  std::optional<double> paramsB;
  std::optional<int64_t> layers, hidden, heads, kvHeads, ffn, vocab, seq, experts, topk;
  std::optional<int64_t> globalBatch, microBatch;  // sequences
  std::optional<int64_t> tp, pp, dp, cp, ep, vp;
  std::optional<int64_t> zero;  // 0: replicated, 1: sharded optimizer, 2: and gradients, 3: all
  std::optional<bool> seqParallel;
  std::string recompute, schedule, precision;
  std::optional<double> tflopsPerGpu, mfuOrPctPeak, tokensPerSecondPerGpu, iterTime;
  std::string flopConvention, notes;
};

// The names of the columns, in order: the header that a file has to have, exactly.
const std::vector<std::string>& rowHeader();

struct RowFile {
  std::vector<CsvRecord> records;  // without the header; one per row
  std::vector<Row> rows;
};

// kInvalidArgument with file, line and column: no CSV, another header, a cell of the wrong type or
// out of range (counts are at least 1, rates and times 1e-12 to 1e15, scored and seq_parallel 0 or
// 1, zero 0 to 3), a row without id, or with that of another.
Result<RowFile> parseRows(const std::string& text, const std::string& name);
// Also kUnavailable: the file cannot be read.
Result<RowFile> loadRows(const std::string& path);

// Seconds of one optimizer step: iter_time_s or, without it,
//   global_batch seq / (tokens_per_s_per_gpu gpus)
// None if it cannot be told.
std::optional<double> measuredSeconds(const Row& row);

// Peak memory of a device, which files put into the notes: "peak_mem_gib=82.4", or _gb (1e9 bytes)
// or _mib. In GiB; none if there is no such note or it holds no number.
std::optional<double> measuredPeakGib(const Row& row);

}  // namespace trireme::cost
