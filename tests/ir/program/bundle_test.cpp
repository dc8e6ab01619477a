#include "ir/program/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ir/program/bundle_files.h"
#include "ir/program/text.h"
#include "tests/support/program_builder.h"

namespace trireme::program {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class BundleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("bundle_test." + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    folder_ = (root_ / "model").string();
  }
  void TearDown() override { fs::remove_all(root_); }

  static Bundle sample() {
    Bundle b;
    b.name = "two-matrix";
    b.target = {"x86-64", {"avx2", "fma"}};
    b.program = trireme::testing::buildPipeline({2, 2, 1, 1, 2, 2});
    for (const Segment& segment : b.program.segments) {
      CompiledSegment& compiled = b.kernels.emplace_back();
      for (const SegmentOp& op : segment.ops) {
        KernelCall call;
        call.op = op;
        compiled.calls.push_back(call);
      }
    }
    b.kernels[0].calls[0].op.attributes.ropeScaling = {RopeScalingKind::kLlama3, 8, 1, 4, 8192};
    KernelCall generated;
    generated.kind = KernelCallKind::kGenerated;
    generated.symbol = "k0";
    generated.operands = {0, 1, 2};
    generated.extent = 32;
    generated.grain = 8;
    generated.warps = 32;
    b.kernels[0].calls.push_back(generated);
    b.planText = "tp: 2\n";
    b.modelText = "name: two-matrix\n";
    b.sharedObject = std::string(
        "\x7f"
        "ELF\0\1",
        6);
    return b;
  }
  // The code is not that of the segments.
  static Bundle forGpus(int numTargets) {
    Bundle b = sample();
    b.sharedObject.clear();
    b.ptx = ".version 8.0\n";
    b.target = {"cuda:", {}};
    for (const char* name : {"sm_80", "sm_90", "sm_90a"}) {
      if (numTargets-- <= 0) break;
      b.target.arch += (b.cubins.empty() ? "" : ",") + std::string(name);
      b.cubins.push_back({name, std::string("\0code for ", 10) + name});
    }
    return b;
  }
  std::string errorOf() const {
    const auto bundle = readBundle(folder_);
    return bundle ? "" : bundle.error().message();
  }
  std::string contents(const std::string& file) const {
    std::ifstream in(folder_ + "/" + file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void overwrite(const std::string& file, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + file, std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path root_;
  std::string folder_;
};

TEST_F(BundleTest, RoundTrips) {
  Bundle bundle = sample();
  ASSERT_TRUE(writeBundle(bundle, folder_).ok());
  const auto back = readBundle(folder_);
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(back->name, bundle.name);
  EXPECT_EQ(back->target.arch, "x86-64");
  EXPECT_EQ(back->target.cpuFeatures, bundle.target.cpuFeatures);
  EXPECT_EQ(serialize(back->program), serialize(bundle.program));
  EXPECT_EQ(back->summary, bundle.summary);
  EXPECT_EQ(back->planText, bundle.planText);
  EXPECT_EQ(back->modelText, bundle.modelText);
  EXPECT_EQ(contents("kernels.so"), bundle.sharedObject);
  EXPECT_EQ(back->sharedObject, bundle.sharedObject);
  ASSERT_EQ(back->kernels.size(), bundle.kernels.size());
  for (size_t s = 0; s < bundle.kernels.size(); ++s)
    for (size_t c = 0; c < bundle.kernels[s].calls.size(); ++c) {
      const KernelCall &a = bundle.kernels[s].calls[c], &b = back->kernels[s].calls[c];
      EXPECT_EQ(a.kind, b.kind);
      EXPECT_EQ(a.symbol, b.symbol);
      EXPECT_EQ(a.operands, b.operands);
      EXPECT_EQ(a.extent, b.extent);
      EXPECT_EQ(a.grain, b.grain);
      EXPECT_EQ(a.warps, b.warps);
      EXPECT_EQ(a.op, b.op);
    }
}

// Of several targets, one after the other.
TEST_F(BundleTest, CodeForGpusRoundTrips) {
  for (const int numTargets : {1, 2, 3}) {
    Bundle bundle = forGpus(numTargets);
    ASSERT_TRUE(writeBundle(bundle, folder_).ok());
    const auto back = readBundle(folder_);
    ASSERT_TRUE(back.has_value()) << back.error().message();
    EXPECT_EQ(back->target.arch, bundle.target.arch);
    EXPECT_EQ(back->ptx, bundle.ptx);
    ASSERT_EQ(back->cubins.size(), bundle.cubins.size());
    for (size_t i = 0; i < bundle.cubins.size(); ++i) {
      EXPECT_EQ(back->cubins[i].target, bundle.cubins[i].target);
      EXPECT_EQ(back->cubins[i].bytes, bundle.cubins[i].bytes);
    }
  }
}

// Without ptxas there is none.
TEST_F(BundleTest, CodeForGpusMayBeMissing) {
  Bundle bundle = forGpus(2);
  bundle.cubins.clear();
  ASSERT_TRUE(writeBundle(bundle, folder_).ok());
  const auto back = readBundle(folder_);
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(back->ptx, bundle.ptx);
  EXPECT_TRUE(back->cubins.empty());
}

// So that what needs nothing new is read by older runtimes, which know kernels.cubin and version 1.
TEST_F(BundleTest, OneTargetIsWrittenInTheFirstVersion) {
  ASSERT_TRUE(writeBundle(forGpus(1), folder_).ok());
  EXPECT_EQ(contents("kernels.cubin"), forGpus(1).cubins[0].bytes);
  EXPECT_THAT(contents("manifest.json"), HasSubstr("\"version\": 1"));
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  EXPECT_THAT(contents("manifest.json"), HasSubstr("\"version\": 1"));
  ASSERT_TRUE(writeBundle(forGpus(2), folder_).ok());
  EXPECT_FALSE(fs::exists(folder_ + "/kernels.cubin"));
  EXPECT_EQ(contents("kernels.sm_90.cubin"), forGpus(2).cubins[1].bytes);
  EXPECT_THAT(contents("manifest.json"), HasSubstr("\"version\": 2"));
}

TEST_F(BundleTest, NamesTheCodeForGpusThatIsDamaged) {
  for (const std::string file :
       {"kernels.ptx", "kernels.sm_80.cubin", "kernels.sm_90.cubin", "kernels.sm_90a.cubin"}) {
    ASSERT_TRUE(writeBundle(forGpus(3), folder_).ok());
    const std::string bytes = contents(file);
    std::string damaged = bytes;
    damaged[damaged.size() / 2] ^= 4;
    overwrite(file, damaged);
    EXPECT_THAT(errorOf(), HasSubstr(file + " is corrupted: the checksum does not match"));
    overwrite(file, bytes.substr(0, bytes.size() - 1));
    EXPECT_THAT(errorOf(), HasSubstr(file + " is truncated"));
    fs::remove(folder_ + "/" + file);
    EXPECT_THAT(errorOf(), HasSubstr(file));
  }
}

TEST_F(BundleTest, ReplacesAnOlderBundleAndLeavesNothingBehind) {
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  Bundle other = sample();
  other.name = "newer";
  other.sharedObject.clear();
  ASSERT_TRUE(writeBundle(other, folder_ + "/").ok());
  EXPECT_EQ(readBundle(folder_)->name, "newer");
  EXPECT_FALSE(fs::exists(folder_ + "/kernels.so"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
}

// As left by mkdir, or mktemp -d.
TEST_F(BundleTest, ReplacesAnEmptyFolder) {
  fs::create_directories(folder_ + "/a folder");
  EXPECT_THAT(writeBundle(sample(), folder_).message(), HasSubstr("not a bundle"));
  fs::remove(folder_ + "/a folder");
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  EXPECT_EQ(readBundle(folder_)->name, sample().name);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
}

TEST_F(BundleTest, RefusesToReplaceAnythingElse) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/thesis.tex") << "precious";
  const Status status = writeBundle(sample(), folder_);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("not a bundle"));
  EXPECT_TRUE(fs::exists(folder_ + "/thesis.tex"));
}

TEST_F(BundleTest, DeletesNothingThatIsNotItsOwn) {
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  std::ofstream(folder_ + "/notes.txt") << "precious";
  EXPECT_THAT(writeBundle(sample(), folder_).message(), HasSubstr("holds notes.txt"));
  EXPECT_TRUE(fs::exists(folder_ + "/notes.txt"));
  fs::remove(folder_ + "/notes.txt");
  for (const char* name : {".partial", ".partial.mine", ".partial.7-0123abcd.mine"}) {
    const std::string beside = folder_ + name;
    fs::create_directories(beside);
    std::ofstream(beside + "/notes.txt") << "precious";
    EXPECT_TRUE(writeBundle(sample(), folder_).ok());  // another name is beside it for a moment
    EXPECT_TRUE(fs::exists(beside + "/notes.txt"));
  }
}

// A process that was killed has no lock any more; one that lives keeps its folder.
TEST_F(BundleTest, RemovesWhatKilledWritersHaveLeft) {
  const auto alive = makePartialFolder(folder_);
  ASSERT_TRUE(alive.has_value());
  const std::string left = folder_ + ".partial.4711-0123abcd";
  fs::create_directories(left);
  std::ofstream(left + "/program.bin") << "half";
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists((*alive)->path()));
}

// Only where there is no exchange, and never over what lies beside.
TEST_F(BundleTest, ReplacesInTwoStepsWhereFoldersCannotBeExchanged) {
  fs::create_directories(folder_ + ".old");
  std::ofstream(folder_ + ".old/notes.txt") << "precious";
  const auto replaceBy = [&](ExchangeFolders exchange) {
    const auto partial = makePartialFolder(folder_);
    EXPECT_TRUE(partial.has_value());
    std::ofstream((*partial)->path() + "/new") << "new";
    const Status status = moveIntoPlace((*partial)->path(), folder_, exchange);
    fs::remove_all((*partial)->path());
    return status.message();
  };
  for (const auto& cannot : {+[](const char*, const char*) { return EINVAL; },
                             +[](const char*, const char*) { return ENOSYS; }}) {
    ASSERT_TRUE(writeBundle(sample(), folder_).ok());
    EXPECT_EQ(replaceBy(cannot), "");
    EXPECT_TRUE(fs::exists(folder_ + "/new"));
    EXPECT_FALSE(fs::exists(folder_ + "/manifest.json"));
    fs::remove_all(folder_);
  }
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  EXPECT_THAT(replaceBy([](const char*, const char*) { return EACCES; }),
              HasSubstr(folder_ + ": cannot replace: Permission denied"));
  EXPECT_EQ(errorOf(), "");
  EXPECT_TRUE(fs::exists(folder_ + ".old/notes.txt"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 2);
}

// Whoever reads meanwhile finds one or the other; the manifest names it.
TEST_F(BundleTest, SeveralMayWriteOneBundleAtOnce) {
  constexpr int kWriters = 4, kTimes = 10;
  std::vector<std::thread> writers;
  std::vector<std::string> errors(kWriters);
  for (int writer = 0; writer < kWriters; ++writer)
    writers.emplace_back([&, writer] {
      Bundle mine = sample();
      mine.name = "writer " + std::to_string(writer);
      for (int time = 0; time < kTimes; ++time)
        errors[static_cast<size_t>(writer)] += writeBundle(mine, folder_).message();
    });
  for (std::thread& writer : writers) writer.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_THAT(readBundle(folder_)->name, HasSubstr("writer "));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
}

TEST_F(BundleTest, RefusesToReplaceThroughALink) {
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  const std::string link = folder_ + ".link";
  fs::create_directory_symlink(folder_, link);
  EXPECT_THAT(writeBundle(sample(), link).message(), HasSubstr("is a link"));
  EXPECT_EQ(readBundle(folder_)->name, sample().name);
  fs::create_directory(folder_ + ".empty");
  fs::create_directory_symlink(folder_ + ".empty", link + "2");
  EXPECT_THAT(writeBundle(sample(), link + "2").message(), HasSubstr("is a link"));
}

TEST_F(BundleTest, SurvivesAnInterruptedWrite) {
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  fs::create_directories(folder_ + ".partial");
  std::ofstream(folder_ + ".partial/program.bin") << "half";
  EXPECT_EQ(errorOf(), "");
  EXPECT_TRUE(writeBundle(sample(), folder_).ok());
}

TEST_F(BundleTest, RefusesBlocksThatNoGpuHas) {
  for (int32_t warps : {0, kMaxWarps + 1}) {
    Bundle bundle = sample();
    bundle.kernels[0].calls.back().warps = warps;
    ASSERT_TRUE(writeBundle(bundle, folder_).ok());
    EXPECT_THAT(errorOf(), HasSubstr("warps is not an integer from 1 to 32"));
  }
}

TEST_F(BundleTest, NamesTheFileThatIsDamaged) {
  for (const char* file :
       {"program.bin", "kernels.json", "kernels.so", "plan.yaml", "model.yaml", "listing.txt"}) {
    ASSERT_TRUE(writeBundle(sample(), folder_).ok());
    const std::string bytes = contents(file);
    std::string damaged = bytes;
    damaged[damaged.size() / 2] ^= 4;
    overwrite(file, damaged);
    EXPECT_THAT(errorOf(), HasSubstr(std::string(file) + " is corrupted"));
    overwrite(file, bytes.substr(0, bytes.size() - 1));
    EXPECT_THAT(errorOf(), HasSubstr(std::string(file) + " is truncated"));
    fs::remove(folder_ + "/" + file);
    EXPECT_THAT(errorOf(), HasSubstr(file));
  }
}

// Whatever happens to the manifest is either found or changes nothing (white space).
TEST_F(BundleTest, FindsEveryDamageOfTheManifest) {
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  const std::string manifest = contents("manifest.json");
  for (size_t i = 0; i < manifest.size(); ++i) {
    std::string damaged = manifest;
    damaged[i] ^= 1;
    overwrite("manifest.json", damaged);
    const auto bundle = readBundle(folder_);
    if (bundle) {
      EXPECT_EQ(bundle->name, "two-matrix") << i;
      EXPECT_TRUE(std::isspace(manifest[i])) << i << " " << manifest.substr(i, 20);
    }
  }
  for (size_t n = 0; n + 2 < manifest.size(); n += 7) {
    overwrite("manifest.json", manifest.substr(0, n));
    EXPECT_FALSE(readBundle(folder_).has_value());
  }
  overwrite("manifest.json", manifest + std::string(1, '\0') + "more");
  EXPECT_FALSE(readBundle(folder_).has_value());
}

TEST_F(BundleTest, RefusesANewerVersion) {
  ASSERT_TRUE(writeBundle(sample(), folder_).ok());
  std::string manifest = contents("manifest.json");
  const size_t at = manifest.find("\"version\": 1");
  ASSERT_NE(at, std::string::npos);
  overwrite("manifest.json", manifest.replace(at, 12, "\"version\": 3"));
  EXPECT_THAT(errorOf(), HasSubstr("bundle version 3 is newer than 2"));
}

TEST_F(BundleTest, RefusesWhatIsNoBundle) {
  EXPECT_THAT(errorOf(), HasSubstr("not a bundle"));
  fs::create_directories(folder_);
  overwrite("manifest.json", "{\"format\": \"something else\"}");
  EXPECT_THAT(errorOf(), HasSubstr("not a bundle"));
}

}  // namespace
}  // namespace trireme::program
