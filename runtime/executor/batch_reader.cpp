#include "runtime/executor/batch_reader.h"

#include <fmt/format.h>

namespace trireme::runtime {

BatchReader::BatchReader(RankDevice& device, const Communicator& comm)
    : device_(device), comm_(comm), training_(device.program().program->training) {
  const RankProgram& rank = device.program();
  const auto add = [&](const FlatInstruction& instruction, const program::TaskRecord& task) {
    if (instruction.kind != program::InstructionKind::kLoadBatch) return;
    Batch& batch = batches_.emplace_back();
    batch.firstSample = program::firstSample(training_, rank.info.dpIndex, task.microbatch);
    for (size_t i = 0; i < 2; ++i) {
      const Operand& operand = rank.operands[static_cast<size_t>(instruction.firstOperand) + i];
      batch.targets[i] = reinterpret_cast<int32_t*>(operand.at(0, task.slot));
    }
  };
  for (const program::TaskRecord& task : rank.role->tasks) {
    const FlatBody& body = rank.bodies[static_cast<size_t>(task.body)];
    for (const Section& section : body.sections)
      for (int32_t repeat = 0; repeat < section.count; ++repeat)
        for (int32_t at = section.begin; at < section.end; ++at)
          add(body.instructions[static_cast<size_t>(at)], task);
  }
}

Status BatchReader::takePlaces() {
  const int64_t tokens = training_.sequenceLength * training_.microbatchSize;
  for (Batch& batch : batches_)
    for (size_t i = 0; i < 2; ++i)
      for (size_t turn = 0; turn < 2 && batch.targets[i] != nullptr; ++turn) {
        TRIREME_ASSIGN_OR_RETURN(batch.staged[turn][i],
                                 device_.stagingFor(batch.targets[i], tokens));
      }
  hasPlaces_ = true;
  return {};
}

Status BatchReader::beginStep(int64_t step, DataSource& data) {
  if (!hasPlaces_) TRIREME_RETURN_IF_ERROR(takePlaces());
  if (readStep_ != step || readFrom_ != data.instance()) numRead_ = 0;
  step_ = step;
  data_ = &data;
  turn_ ^= 1;
  next_ = 0;
  return {};
}

Status BatchReader::load() {
  TRIREME_CHECK(next_ < batches_.size());
  const bool isRead = next_ < numRead_;
  const Batch& batch = batches_[next_++];
  const Columns& columns = batch.staged[turn_];
  if (!isRead) TRIREME_RETURN_IF_ERROR(read(batch, step_, columns));
  const int64_t tokens = training_.sequenceLength * training_.microbatchSize;
  for (size_t i = 0; i < 2; ++i)
    if (columns[i] != nullptr)
      TRIREME_RETURN_IF_ERROR(device_.sendTokens(batch.targets[i], columns[i], tokens));
  return {};
}

void BatchReader::readAhead() {
  numRead_ = 0;
  if (!device_.isAsynchronous()) return;
  readStep_ = step_ + 1;
  readFrom_ = data_->instance();
  readAhead_ = {};
  for (const Batch& batch : batches_) {
    if (comm_.failed()) return;
    readAhead_ = read(batch, readStep_, batch.staged[turn_ ^ 1]);
    if (!readAhead_.ok()) return;
    ++numRead_;
  }
}

Status BatchReader::check(int64_t step, DataSource& data) const {
  if (readStep_ == step && readFrom_ == data.instance()) return readAhead_;
  for (const Batch& batch : batches_)
    for (int64_t i = 0; i < training_.microbatchSize; ++i)
      TRIREME_RETURN_IF_ERROR(
          data.sample(sampleOf(batch, step, i), training_.sequenceLength, 1, nullptr, nullptr));
  return {};
}

uint64_t BatchReader::sampleOf(const Batch& batch, int64_t step, int64_t i) const {
  return static_cast<uint64_t>(step * training_.globalBatchSize + batch.firstSample + i);
}

// Tokens are [s, b]: sample i of the microbatch is column i.
Status BatchReader::read(const Batch& batch, int64_t step, const Columns& columns) {
  for (int64_t i = 0; i < training_.microbatchSize; ++i)
    TRIREME_RETURN_IF_ERROR(readSample(sampleOf(batch, step, i), i, columns));
  return {};
}

Status BatchReader::readSample(uint64_t sample, int64_t column, const Columns& columns) {
  const int64_t length = training_.sequenceLength, batch = training_.microbatchSize;
  const auto at = [&](int32_t* tokens) { return tokens == nullptr ? nullptr : tokens + column; };
  TRIREME_RETURN_IF_ERROR(data_->sample(sample, length, batch, at(columns[0]), at(columns[1])));
  for (size_t i = 0; i < 2; ++i)
    for (int64_t s = 0; columns[i] != nullptr && s < length; ++s)
      if (const int32_t token = columns[i][s * batch + column];
          token < 0 || token >= training_.vocabSize)
        return invalidArgument(
            fmt::format("sample {}, position {}: token {} is not in the vocabulary of {}", sample,
                        s + static_cast<int64_t>(i), token, training_.vocabSize));
  return {};
}

}  // namespace trireme::runtime
