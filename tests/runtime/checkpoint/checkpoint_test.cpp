#include "runtime/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>

#include "ir/program/checksum.h"
#include "runtime/session.h"
#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/state_program.h"
#include "tests/runtime/executor/tiny_program.h"

namespace trireme::runtime {
namespace {

// Files in memory on a disk of `capacity` bytes that can also fail to sync.
class MemoryDisk final : public FileSystem {
 public:
  std::map<std::string, std::string> files;
  int64_t capacity = int64_t{1} << 40;
  bool syncFails = false;

  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override {
    files[path].clear();
    return std::make_unique<Output>(*this, files[path]);
  }
  Result<std::unique_ptr<InputFile>> open(const std::string& path) override {
    if (!files.contains(path)) return Error(invalidArgument(path + ": No such file or directory"));
    return std::make_unique<Input>(files[path]);
  }
  Status rename(const std::string& from, const std::string& to) override {
    files[to] = files[from];
    files.erase(from);
    return {};
  }
  void remove(const std::string& path) override { files.erase(path); }

 private:
  struct Output final : OutputFile {
    Output(MemoryDisk& disk, std::string& text) : disk(disk), text(text) {}
    Status write(int64_t offset, const char* bytes, int64_t count) override {
      if (offset + count > disk.capacity) return resourceExhausted("the disk is full");
      text.resize(std::max(text.size(), static_cast<size_t>(offset + count)));
      std::memcpy(text.data() + offset, bytes, static_cast<size_t>(count));
      return {};
    }
    Status sync() override { return disk.syncFails ? unavailable("the disk broke") : Status(); }
    MemoryDisk& disk;
    std::string& text;
  };
  struct Input final : InputFile {
    explicit Input(const std::string& text) : text(text) {}
    int64_t size() const override { return static_cast<int64_t>(text.size()); }
    Status read(int64_t offset, char* bytes, int64_t count) const override {
      if (offset + count > size()) return invalidArgument("truncated");
      std::memcpy(bytes, text.data() + offset, static_cast<size_t>(count));
      return {};
    }
    std::string text;
  };
};

std::unique_ptr<Session> sessionOf(program::Bundle bundle) {
  SessionOptions options;
  options.useReference = true;
  options.timeoutSeconds = 20;
  auto session = Session::create(std::move(bundle), options);
  EXPECT_TRUE(session.has_value()) << session.error().message();
  return std::move(*session);
}

void runSteps(Session& session, int numSteps) {
  CountingData data;
  for (int i = 0; i < numSteps; ++i) ASSERT_TRUE(session.step(data).has_value());
}

StateOptions plan(int32_t tp, int32_t dp, bool sharded, bool pieces = false) {
  StateOptions options{tp, dp, sharded};
  options.adamW = true;
  options.pieces = pieces;
  return options;
}

// dp changes the global batch of the test program, so it is put back.
program::Bundle bundleOf(const StateOptions& options) {
  program::Bundle bundle = stateBundle(options);
  bundle.program.training.globalBatchSize = 60;
  return bundle;
}

std::vector<std::vector<double>> weights(const Session& session) {
  std::vector<std::vector<double>> all;
  for (const NamedTensor& tensor : session.gatherParameters()) all.push_back(tensor.values);
  return all;
}

TEST(Checkpoint, ContinuesBitForBitUnderTheSamePlan) {
  MemoryDisk disk;
  const auto straight = sessionOf(tinyBundle({}));
  runSteps(*straight, 5);
  const auto first = sessionOf(tinyBundle({}));
  runSteps(*first, 2);
  ASSERT_TRUE(first->saveCheckpoint("c", disk).ok());
  const auto second = sessionOf(tinyBundle({}));
  ASSERT_TRUE(second->loadCheckpoint("c", disk).ok());
  EXPECT_EQ(second->numStepsDone(), 2);
  runSteps(*second, 3);
  EXPECT_EQ(weights(*second), weights(*straight));
  ASSERT_TRUE(straight->saveCheckpoint("a", disk).ok());
  ASSERT_TRUE(second->saveCheckpoint("b", disk).ok());
  EXPECT_EQ(disk.files["a"], disk.files["b"]);  // moments as well
}

TEST(Checkpoint, ReadsTheSameUnderEveryPlanAndIsTheSameFile) {
  MemoryDisk disk;
  const auto writer = sessionOf(bundleOf(plan(2, 3, true)));
  runSteps(*writer, 2);
  ASSERT_TRUE(writer->saveCheckpoint("c", disk).ok());
  for (const int32_t tp : {1, 2, 4})
    for (const int32_t dp : {1, 2, 5})
      for (const bool sharded : {false, true})
        for (const bool pieces : {false, true}) {
          const auto reader = sessionOf(bundleOf(plan(tp, dp, sharded, pieces)));
          const Status status = reader->loadCheckpoint("c", disk);
          ASSERT_TRUE(status.ok()) << status.message();
          EXPECT_EQ(weights(*reader), weights(*writer));
          ASSERT_TRUE(reader->saveCheckpoint("d", disk).ok());
          EXPECT_EQ(disk.files["d"], disk.files["c"]) << tp << dp << sharded << pieces;
        }
}

// The owner of an element is another one: members share out each layer, not all of them.
TEST(Checkpoint, TrainsTheSameInPieces) {
  MemoryDisk disk;
  for (const bool pieces : {false, true}) {
    const auto session = sessionOf(bundleOf(plan(2, 3, true, pieces)));
    runSteps(*session, 3);
    ASSERT_TRUE(session->saveCheckpoint(pieces ? "pieces" : "whole", disk).ok());
  }
  EXPECT_TRUE(disk.files["pieces"] == disk.files["whole"]);
}

TEST(Checkpoint, ParametersInComputeTypeFollowTheirMasters) {
  MemoryDisk disk;
  const auto writer = sessionOf(bundleOf(plan(1, 1, false)));
  runSteps(*writer, 1);
  ASSERT_TRUE(writer->saveCheckpoint("c", disk).ok());
  StateOptions options = plan(2, 2, true);
  options.bf16 = true;
  const auto reader = sessionOf(bundleOf(options));
  ASSERT_TRUE(reader->loadCheckpoint("c", disk).ok());
  EXPECT_EQ(weights(*reader), weights(*writer));
  const auto masters = reader->gatherParameters(), rounded = reader->gatherComputeParameters();
  for (size_t t = 0; t < masters.size(); ++t)
    for (size_t i = 0; i < masters[t].values.size(); ++i)
      EXPECT_NEAR(rounded[t].values[i], masters[t].values[i], std::abs(masters[t].values[i]) / 256);
}

TEST(Checkpoint, AFullDiskLeavesTheOldOne) {
  MemoryDisk disk;
  const auto session = sessionOf(bundleOf(plan(1, 1, false)));
  runSteps(*session, 1);
  ASSERT_TRUE(session->saveCheckpoint("c", disk).ok());
  const std::string old = disk.files["c"];
  runSteps(*session, 1);
  for (int64_t capacity = 0; capacity < static_cast<int64_t>(old.size()); capacity += 97) {
    disk.capacity = capacity;
    const Status status = session->saveCheckpoint("c", disk);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(),
              "checkpoint not written, what was there before is untouched: the disk is full");
    EXPECT_EQ(disk.files["c"], old);
    EXPECT_EQ(disk.files.size(), 1u);
  }
  disk.capacity = 1 << 30;
  disk.syncFails = true;
  EXPECT_EQ(session->saveCheckpoint("c", disk).code(), StatusCode::kUnavailable);
  EXPECT_EQ(disk.files["c"], old);
}

// 1 - 1.7e308 (1 + 0.1) is below the smallest number.
TEST(Checkpoint, WeightsThatAreNotFiniteAreNotSaved) {
  MemoryDisk disk;
  program::Bundle bundle = tinyBundle({});
  bundle.program.training.learningRate = 1.7e308;
  const auto session = sessionOf(std::move(bundle));
  ASSERT_TRUE(session->saveCheckpoint("c", disk).ok());
  const std::string old = disk.files["c"];
  runSteps(*session, 1);
  const Status status = session->saveCheckpoint("c", disk);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "checkpoint not written, what was there before is untouched: tensor layers.0.w: element "
      "0 is -inf: the training has diverged");
  EXPECT_EQ(disk.files["c"], old);
  EXPECT_EQ(disk.files.size(), 1u);
}

class Damaged : public ::testing::Test {
 protected:
  Damaged() : session_(sessionOf(bundleOf(plan(1, 1, false)))) {
    runSteps(*session_, 1);
    EXPECT_TRUE(session_->saveCheckpoint("c", disk_).ok());
    before_ = weights(*session_);
  }
  // The message, after checking that the session is as it was.
  std::string errorOf(const std::string& file) {
    disk_.files["bad"] = file;
    const Status status = session_->loadCheckpoint("bad", disk_);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_EQ(weights(*session_), before_);
    EXPECT_EQ(session_->numStepsDone(), 1);
    return status.message();
  }
  std::string replaced(const std::string& from, const std::string& to) {
    std::string file = disk_.files["c"];
    const size_t at = file.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    return file.replace(at, from.size(), to);
  }
  // The file as one that was written with this header, and so with the right checksum.
  std::string with(const std::function<void(SafetensorsHeader&)>& change) {
    const std::string& file = disk_.files["c"];
    SafetensorsHeader header = *readHeader(**disk_.open("c"));
    change(header);
    header.metadata.erase("header_crc32c");
    const std::string sum = fmt::format("{:08x}", program::crc32c(formatHeader(header)));
    if (header.metadata["version"] != "1") header.metadata["header_crc32c"] = sum;
    return formatHeader(header) + file.substr(static_cast<size_t>(header.dataOffset));
  }
  std::string with(const std::string& key, const std::string& value) {
    return with([&](SafetensorsHeader& header) { header.metadata[key] = value; });
  }

  MemoryDisk disk_;
  std::unique_ptr<Session> session_;
  std::vector<std::vector<double>> before_;
};

TEST_F(Damaged, TruncationIsNoticedAtEveryLength) {
  const std::string good = disk_.files["c"];
  for (size_t size = 0; size < good.size(); size += 13)
    EXPECT_NE(errorOf(good.substr(0, size)).find("truncated"), std::string::npos) << size;
}

TEST_F(Damaged, AChangedByteOfDataNamesItsTensor) {
  std::string file = disk_.files["c"];
  file[file.size() - 1] = static_cast<char>(file[file.size() - 1] ^ 1);
  EXPECT_EQ(errorOf(file), "checkpoint bad: tensor optimizer.moment2.norm is corrupt");
}

TEST_F(Damaged, OtherFilesAndVersionsAndSettingsAreRefused) {
  EXPECT_EQ(errorOf(replaced("trireme.checkpoint", "another.checkpoint")),
            "checkpoint bad: a safetensors file, but not a Trireme checkpoint");
  EXPECT_EQ(errorOf(with("version", "3")),
            "checkpoint bad: written by a newer Trireme: version 3, this one reads 2");
  EXPECT_EQ(errorOf(with("version", "0")),
            "checkpoint bad: metadata: version is 0, and the first one was 1");
  EXPECT_EQ(errorOf(with("model_fingerprint", "1")),
            "checkpoint bad: of another model: both are called 'state', and something else about "
            "them differs");
  EXPECT_EQ(errorOf(with([](SafetensorsHeader& header) {
              header.metadata["model"] = "other";
              header.metadata["model_fingerprint"] = "1";
            })),
            "checkpoint bad: of another model: other in the checkpoint and state in this run");
  const auto withOther = [&](const std::function<void(TensorEntry&)>& change) {
    return errorOf(with([&](SafetensorsHeader& header) {
      header.metadata["model_fingerprint"] = "1";
      for (TensorEntry& entry : header.tensors)
        if (entry.name == "norm") change(entry);
    }));
  };
  EXPECT_EQ(withOther([](TensorEntry& entry) { entry.dims = {1, entry.dims[0]}; }),
            "checkpoint bad: of another model: tensor norm is [1, 7] in the checkpoint and [7] in "
            "this run");
  EXPECT_EQ(withOther([](TensorEntry& entry) { entry.name = "a"; }),
            "checkpoint bad: of another model: this run has a tensor norm, the checkpoint none");
  EXPECT_EQ(errorOf(with("seed", "22")),
            "checkpoint bad: seed is 22 in the checkpoint and 21 in this run");
  EXPECT_EQ(errorOf(with("step", "x")), "checkpoint bad: metadata: step is not a number: x");
  for (const char* other : {"59", "61", "119", "120"})
    EXPECT_EQ(errorOf(with("next_sample", other)),
              "checkpoint bad: metadata: step and next_sample disagree");
}

// Each of them alone would be believed.
TEST_F(Damaged, AChangedHeaderIsNoticed) {
  const auto expectCorrupt = [&](const std::string& from, const std::string& to) {
    SCOPED_TRACE(from);
    EXPECT_EQ(errorOf(replaced(from, to)),
              "checkpoint bad: the header is corrupt: its checksum does not match");
  };
  expectCorrupt(R"("version":"2")", R"("version":"1")");
  expectCorrupt(R"("compute_dtype":")", R"("compute_dtypd":")");
  expectCorrupt(R"("learning_rate":")", R"("learning_ratg":")");
  expectCorrupt(R"("step":"1")", R"("step":"0")");
  expectCorrupt(R"("header_crc32c")", R"("heAder_crc32c")");
  expectCorrupt(R"("layers.1.w":)", R"("layers.9.w":)");
}

TEST_F(Damaged, FilesOfTheFirstVersionAreReadWithoutAChecksumOfTheirHeader) {
  disk_.files["old"] = with("version", "1");
  EXPECT_EQ(disk_.files["old"].find("header_crc32c"), std::string::npos);
  const auto session = sessionOf(bundleOf(plan(1, 1, false)));
  const Status status = session->loadCheckpoint("old", disk_);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(weights(*session), before_);
}

TEST_F(Damaged, AMissingOrMisshapenTensorIsNamed) {
  const auto tensor = [](SafetensorsHeader& header, const std::string& name) {
    return std::find_if(header.tensors.begin(), header.tensors.end(),
                        [&](const TensorEntry& entry) { return entry.name == name; });
  };
  EXPECT_EQ(errorOf(with([&](auto& header) { tensor(header, "layers.1.w")->name = "other"; })),
            "checkpoint bad: no tensor layers.1.w");
  EXPECT_EQ(errorOf(with([&](auto& header) { tensor(header, "layers.0.w")->dims = {4, 5}; })),
            "checkpoint bad: tensor layers.0.w is [4, 5], not [5, 4]");
  EXPECT_EQ(session_->loadCheckpoint("none", disk_).message(), "none: No such file or directory");
}

// On a real disk: /dev/full accepts nothing, and a folder is no file.
TEST(PosixFiles, AFullDeviceIsResourceExhausted) {
  PosixFileSystem files;
  auto file = files.create("/dev/full");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const Status status = (*file)->write(0, "abc", 3);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "/dev/full: the disk is full: No space left on device");
}

// Each has a file of its own until it renames it: none is cut off or mixed.
TEST(PosixFiles, OfTwoThatReplaceAFileTheLastWins) {
  const std::string path = ::testing::TempDir() + "replaced_twice";
  PosixFileSystem files;
  const auto writing = [](const char* text) {
    return [text](OutputFile& file) { return file.write(0, text, 3); };
  };
  const Status outer = replaceFile(path, files, [&](OutputFile& file) -> Status {
    TRIREME_RETURN_IF_ERROR(file.write(0, "one", 3));
    TRIREME_RETURN_IF_ERROR(replaceFile(path, files, writing("two")));
    return file.write(3, "one", 3);
  });
  ASSERT_TRUE(outer.ok()) << outer.message();
  const auto file = files.open(path);
  ASSERT_TRUE(file.has_value());
  std::string text(6, ' ');
  ASSERT_EQ((*file)->size(), 6);
  ASSERT_TRUE((*file)->read(0, text.data(), 6).ok());
  EXPECT_EQ(text, "oneone");
  EXPECT_EQ(files.create(path).error().message(), path + ": File exists");
  files.remove(path);
}

TEST(PosixFiles, ACheckpointRoundTripsAndLeavesNoOtherFile) {
  const std::string path = ::testing::TempDir() + "checkpoint_test.safetensors";
  const auto session = sessionOf(bundleOf(plan(1, 1, false)));
  runSteps(*session, 1);
  ASSERT_TRUE(session->saveCheckpoint(path).ok());
  const auto other = sessionOf(bundleOf(plan(2, 1, false)));
  const Status status = other->loadCheckpoint(path);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(weights(*other), weights(*session));
  PosixFileSystem files;
  const std::filesystem::path kept(path);
  for (const auto& entry : std::filesystem::directory_iterator(kept.parent_path())) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with(kept.filename().string() + ".")) << name;
  }
  files.remove(path);
  EXPECT_EQ(session->saveCheckpoint(::testing::TempDir() + "no/such/folder/c").code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(files.open(::testing::TempDir()).error().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trireme::runtime
