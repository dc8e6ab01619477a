// The tokens of a rank's steps: reads what its kLoadBatch instructions ask for, and sends it to the
// device.
//
// A device may work on when the host has asked it for all of a step. Then the host reads the next
// step's tokens meanwhile, and a step begins with tokens that are there:
//
//   host     ask for n | read n + 1 | wait | ask for n + 1 | read n + 2 | wait
//   device   |----------- step n ----------|  |----------- step n + 1 ---------|
//
// Reading ahead changes no sample and no error: what cannot be read then is read when its step
// loads it, and what was read for another step or from another source is read anew.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "ir/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/data_source.h"
#include "runtime/device/device.h"

namespace trireme::runtime {

class BatchReader {
 public:
  // Both outlive the reader.
  BatchReader(RankDevice& device, const Communicator& comm);

  // Takes memory of the device in the first step; no later call does. Errors: those of the device.
  Status beginStep(int64_t step, DataSource& data);
  // For the step's next kLoadBatch, in the order of the role's tasks. kInvalidArgument: a sample
  // cannot be formed, or has a token outside of the vocabulary. Also errors of the device.
  Status load();
  // When all of the step has been asked for. Ends early if a rank has failed. Nothing to do for a
  // device that does everything at once.
  void readAhead();
  // Whether the samples of the step can be formed. What was read ahead is known; other samples are
  // asked for, and kept nowhere. Errors: as load().
  Status check(int64_t step, DataSource& data) const;

 private:
  using Columns = std::array<int32_t*, 2>;  // tokens, labels; null: not wanted
  // One kLoadBatch of a step.
  struct Batch {
    int64_t firstSample = 0;  // of the step
    Columns targets{};
    std::array<Columns, 2> staged{};  // of steps that take turns
  };

  Status takePlaces();
  uint64_t sampleOf(const Batch& batch, int64_t step, int64_t i) const;
  Status read(const Batch& batch, int64_t step, const Columns& columns);
  Status readSample(uint64_t sample, int64_t column, const Columns& columns);

  RankDevice& device_;
  const Communicator& comm_;
  const program::Training& training_;
  std::vector<Batch> batches_;
  bool hasPlaces_ = false;
  int64_t step_ = 0;
  DataSource* data_ = nullptr;
  size_t turn_ = 0;  // which of the places this step's tokens are in
  size_t next_ = 0;  // batch that load() is for
  // The first batches that have been read: of this step, and then of step_ + 1.
  size_t numRead_ = 0;
  int64_t readStep_ = -1;
  Status readAhead_;       // what ended it
  uint64_t readFrom_ = 0;  // DataSource::instance()
};

}  // namespace trireme::runtime
