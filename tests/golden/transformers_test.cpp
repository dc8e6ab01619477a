// Weights of Hugging Face transformers: the same losses, and back again bit for bit. The models and
// what transformers says of them are made by transformers/make_models.py.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/weights/hugging_face.h"
#include "ir/expand/expand.h"
#include "ir/spec/load.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/session.h"
#include "runtime/state/elements.h"
#include "tests/support/small_plan.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kFolder = TRIREME_SOURCE_DIR "/tests/golden/transformers/";
constexpr const char* kModels[] = {"gpt2",  "llama",        "llama-biased", "mistral",
                                   "qwen2", "llama-scaled", "llama-linear"};
constexpr int64_t kSequence = 12, kSequences = 6;

class TransformersData : public runtime::DataSource {
 public:
  Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                int32_t* labels) override {
    const auto token = [&](int64_t i) {
      const auto n = static_cast<int64_t>(index);
      return static_cast<int32_t>((7 * i * i + 5 * i * n + 11 * n + i) % 61);
    };
    for (int64_t i = 0; i < length; ++i) {
      if (tokens != nullptr) tokens[i * stride] = token(i);
      if (labels != nullptr) labels[i * stride] = token(i + 1);
    }
    return {};
  }
};

spec::ModelSpec modelOf(const std::string& folder) {
  Result<spec::ModelSpec> model = spec::loadModel(folder + "/config.json");
  EXPECT_TRUE(model.has_value()) << model.error().message();
  return *std::move(model);
}

// One sequence per step, and a learning rate that changes nothing: every step has the weights of
// the file.
std::unique_ptr<runtime::Session> sessionOf(const spec::ModelSpec& model, spec::Precision precision,
                                            int64_t tp = 1, int64_t pp = 1) {
  spec::TrainingSpec training = small::training(1, kSequence);
  training.precision = precision;
  training.learningRate = 1e-300;
  plan::Plan plan = small::plan(model, training, tp, pp);
  plan.vocabMultiple = 4;
  auto expansion = expand::expand(model, plan);
  EXPECT_TRUE(expansion.has_value()) << expansion.error().message();
  program::Bundle bundle;
  bundle.name = model.name;
  bundle.program = std::move(expansion->program);
  bundle.kernels.resize(bundle.program.segments.size());
  auto session = runtime::Session::create(std::move(bundle), {});
  EXPECT_TRUE(session.has_value()) << session.error().message();
  return *std::move(session);
}

void expectLosses(const std::string& name, runtime::Session& session, double tolerance) {
  std::ifstream file(kFolder + "goldens.json");
  const nlohmann::json goldens = nlohmann::json::parse(file);
  TransformersData data;
  for (int64_t i = 0; i < kSequences; ++i) {
    const auto step = session.step(data);
    ASSERT_TRUE(step.has_value()) << step.error().message();
    const double expected = goldens.at(name).at(static_cast<size_t>(i));
    EXPECT_NEAR(step->loss, expected, tolerance * expected) << name << ", sequence " << i;
  }
}

// fp64 on both sides; transformers keeps the angles of rotary positions in fp32.
double toleranceFor(const std::string& name) { return name == "gpt2" ? 1e-13 : 3e-7; }

TEST(Transformers, WeightsGiveTheSameLossOfEverySequence) {
  for (const std::string name : kModels) {
    const spec::ModelSpec model = modelOf(kFolder + name);
    const auto session = sessionOf(model, spec::Precision::kFp64);
    const Status loaded = session->loadForeignWeights(*huggingFaceWeights(model), kFolder + name);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    expectLosses(name, *session, toleranceFor(name));
  }
}

// 3 heads of gpt2, 2 key/value heads of the others.
TEST(Transformers, WeightsAreDividedOverRanks) {
  for (const std::string name : kModels) {
    const spec::ModelSpec model = modelOf(kFolder + name);
    const auto session = sessionOf(model, spec::Precision::kFp64, name == "gpt2" ? 3 : 2, 2);
    const Status loaded = session->loadForeignWeights(*huggingFaceWeights(model), kFolder + name);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    expectLosses(name, *session, toleranceFor(name));
  }
}

// What every file of `folder` holds: bytes by tensor.
std::map<std::string, std::string> tensorsIn(const std::string& folder) {
  std::map<std::string, std::string> tensors;
  runtime::PosixFileSystem files;
  for (const auto& item : fs::directory_iterator(folder)) {
    if (item.path().extension() != ".safetensors") continue;
    const auto file = files.open(item.path().string());
    const auto header = runtime::readHeader(**file);
    EXPECT_TRUE(header.has_value()) << header.error().message();
    for (const runtime::TensorEntry& entry : header->tensors) {
      std::string bytes(static_cast<size_t>(entry.end - entry.begin), '\0');
      EXPECT_TRUE((*file)
                      ->read(header->dataOffset + entry.begin, bytes.data(),
                             static_cast<int64_t>(bytes.size()))
                      .ok());
      tensors[entry.name] = std::move(bytes);
    }
  }
  return tensors;
}

class TransformersFiles : public ::testing::Test {
 protected:
  TransformersFiles()
      : folder_(::testing::TempDir() + "/transformers_" + std::to_string(getpid()) + "_" +
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~TransformersFiles() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // A file with these tensors of f32, whose values count up.
  void write(const std::string& name, const std::vector<runtime::ForeignTensor>& tensors,
             DType type = DType::kF32) const {
    runtime::SafetensorsHeader header;
    int64_t at = 0;
    for (const runtime::ForeignTensor& tensor : tensors) {
      runtime::TensorEntry entry{tensor.name, type, tensor.dims(), at, 0};
      at += tensor.rows * tensor.cols * byteSize(type);
      entry.end = at;
      header.tensors.push_back(entry);
    }
    std::ofstream file(path(name), std::ios::binary);
    file << runtime::formatHeader(header) << std::string(static_cast<size_t>(at), '\1');
  }

  // The error of loading `file` into a gpt2.
  std::string refusalOf(const std::string& file) const {
    const spec::ModelSpec model = modelOf(kFolder + "gpt2");
    const auto session = sessionOf(model, spec::Precision::kFp32);
    const auto before = session->gatherParameters();
    const Status status = session->loadForeignWeights(*huggingFaceWeights(model), path(file));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    const auto after = session->gatherParameters();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].values, after[i].values);
    return std::string(status.message());
  }

 private:
  std::string folder_;
};

TEST_F(TransformersFiles, ComeBackBitForBit) {
  for (const std::string name : kModels) {
    const spec::ModelSpec model = modelOf(kFolder + name);
    const runtime::ForeignWeights weights = *huggingFaceWeights(model);
    const auto session = sessionOf(model, spec::Precision::kFp32);
    ASSERT_TRUE(session->loadForeignWeights(weights, kFolder + name).ok());
    const std::string checkpoint = path(name + ".safetensors"), out = path(name);
    ASSERT_TRUE(session->saveCheckpoint(checkpoint).ok());
    fs::create_directories(out);
    runtime::PosixFileSystem files;
    const Status written = runtime::writeForeignWeights(checkpoint, weights, DType::kF32, true,
                                                        out + "/model.safetensors", files);
    ASSERT_TRUE(written.ok()) << written.message();
    EXPECT_EQ(tensorsIn(out), tensorsIn(kFolder + name)) << name;
    EXPECT_EQ(std::distance(fs::directory_iterator(out), {}), 1);

    spec::ModelSpec again = *spec::parseModel(*huggingFaceConfig(model), "config.json");
    again.name = model.name;
    EXPECT_EQ(again, model) << name;
  }
}

// A weight that is no number would be found when the training is saved, or never; so would one that
// the program's type does not hold.
TEST_F(TransformersFiles, AreOfNumbers) {
  const std::vector<runtime::ForeignTensor> tensors =
      huggingFaceWeights(modelOf(kFolder + "gpt2"))->tensors;
  for (const DType type : {DType::kF32, DType::kF64}) {
    write("bad.safetensors", tensors, type);
    const double bad = type == DType::kF64 ? 1e300 : std::numeric_limits<double>::quiet_NaN();
    double element = 0;
    runtime::storeElement(&element, type, 0, bad);
    std::fstream file(path("bad.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4 * byteSize(type), std::ios::end);
    file.write(reinterpret_cast<const char*>(&element), byteSize(type));
    file.close();
    const runtime::ForeignTensor& last = tensors.back();
    EXPECT_THAT(
        refusalOf("bad.safetensors"),
        ::testing::AllOf(
            HasSubstr(fmt::format("tensor {}, element {}: ", last.name, last.rows * last.cols - 4)),
            HasSubstr(type == DType::kF64 ? "1e+300 is no finite f32" : "nan is no finite f32")));
  }
}

// In bf16, the upper half of each float, rounded to nearest even; read again, the same bf16.
TEST_F(TransformersFiles, InBf16AreRoundedOnce) {
  const spec::ModelSpec model = modelOf(kFolder + "qwen2");
  const runtime::ForeignWeights weights = *huggingFaceWeights(model);
  const auto session = sessionOf(model, spec::Precision::kFp32);
  ASSERT_TRUE(session->loadForeignWeights(weights, kFolder + "qwen2").ok());
  const auto exact = session->gatherParameters();
  runtime::PosixFileSystem files;
  ASSERT_TRUE(session->saveCheckpoint(path("c.safetensors")).ok());
  ASSERT_TRUE(runtime::writeForeignWeights(path("c.safetensors"), weights, DType::kBf16, true,
                                           path("model.safetensors"), files)
                  .ok());
  ASSERT_TRUE(session->loadForeignWeights(weights, path("model.safetensors")).ok());
  const auto rounded = session->gatherParameters();
  int64_t changed = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    for (size_t k = 0; k < exact[i].values.size(); ++k) {
      const double x = exact[i].values[k];
      ASSERT_LE(std::abs(rounded[i].values[k] - x), std::abs(x) / 256) << exact[i].name;
      changed += rounded[i].values[k] != x;
    }
  EXPECT_GT(changed, 1000);
}

TEST_F(TransformersFiles, OfAnotherShapeAreRefusedByName) {
  const spec::ModelSpec model = modelOf(kFolder + "gpt2");
  const auto all = huggingFaceWeights(model)->tensors;
  write("whole.safetensors", all);
  const auto session = sessionOf(model, spec::Precision::kFp32);
  EXPECT_TRUE(
      session->loadForeignWeights(*huggingFaceWeights(model), path("whole.safetensors")).ok());

  auto changed = all;
  changed.pop_back();
  write("missing.safetensors", changed);
  EXPECT_THAT(refusalOf("missing.safetensors"), HasSubstr("no tensor ln_f.bias"));
  changed = all;
  changed[3].rows = 25;
  write("misshapen.safetensors", changed);
  EXPECT_THAT(refusalOf("misshapen.safetensors"),
              HasSubstr("tensor h.0.ln_1.bias is [25], the model's is [24]"));
  changed = all;
  changed.push_back({"h.2.ln_1.bias", 24, 1, true});
  write("more.safetensors", changed);
  EXPECT_THAT(refusalOf("more.safetensors"),
              HasSubstr("tensor h.2.ln_1.bias is not of this model"));
  write("integers.safetensors", all, DType::kI32);
  EXPECT_THAT(refusalOf("integers.safetensors"), HasSubstr("tensor wte.weight is of integers"));
  changed = all;
  changed.push_back({"h.0.attn.bias", 16, 16});  // the mask that older files hold
  write("mask.safetensors", changed);
  EXPECT_TRUE(
      session->loadForeignWeights(*huggingFaceWeights(model), path("mask.safetensors")).ok());
}

TEST_F(TransformersFiles, ThatAreNotThereAreNamed) {
  EXPECT_THAT(refusalOf("nowhere"), HasSubstr("neither a safetensors file nor a folder with"));
  std::ofstream(path("a.index.json")) << R"({"weight_map": {"wte.weight": "part.safetensors"}})";
  EXPECT_THAT(refusalOf("a.index.json"), HasSubstr("part.safetensors"));
  std::ofstream(path("b.index.json")) << R"({"weights": 1})";
  EXPECT_THAT(refusalOf("b.index.json"), HasSubstr("needs an object weight_map"));
  std::ofstream(path("c.index.json")) << R"({"weight_map": {"wte.weight": "../x.safetensors"}})";
  EXPECT_THAT(refusalOf("c.index.json"), HasSubstr("the name of a file beside it"));
  write("part.safetensors", {{"wpe.weight", 16, 24}});
  EXPECT_THAT(refusalOf("a.index.json"), HasSubstr("tensor wte.weight is not in part.safetensors"));
  std::ofstream(path("d.safetensors")) << "short";
  EXPECT_THAT(refusalOf("d.safetensors"), HasSubstr("d.safetensors"));
}

TEST(HuggingFaceWeights, OtherCombinationsHaveNoClass) {
  spec::ModelSpec model = modelOf(kFolder + "gpt2");
  model.position = spec::PositionKind::kRotary;
  const auto weights = huggingFaceWeights(model);
  ASSERT_FALSE(weights.has_value());
  EXPECT_THAT(weights.error().message(), HasSubstr("Hugging Face's gpt2 has learned positions"));
  EXPECT_FALSE(huggingFaceConfig(model).has_value());
}

}  // namespace
}  // namespace trireme::cli
