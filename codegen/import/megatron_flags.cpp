#include "codegen/import/megatron_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "codegen/import/formats.h"
#include "codegen/import/words.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/suggestion.h"
#include "ir/spec/yaml_node.h"

namespace trireme::codegen {
namespace {

// Flags without a value: what stands behind them is something else. Those that scripts have most.
constexpr std::array<std::string_view, 76> kSwitches = {
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
    "--accumulate-allreduce-grads-in-fp32",
    "--add-qkv-bias",
    "--apply-layernorm-1p",
    "--apply-query-key-layer-scaling",
    "--async-save",
    "--attention-softmax-in-fp32",
    "--auto-detect-ckpt-format",
    "--bf16",
    "--calculate-per-token-loss",
    "--create-attention-mask-in-dataloader",
    "--cross-entropy-loss-fusion",
    "--defer-embedding-wgrad-compute",
    "--disable-bias-linear",
    "--distributed-optimizer",
    "--enable-cuda-graph",
    "--finetune",
    "--fp16",
    "--fp8-param-gather",
    "--grad-reduce-in-bf16",
    "--group-query-attention",
    "--log-batch-size-to-tensorboard",
    "--log-memory-to-tensorboard",
    "--log-num-zeros-in-grad",
    "--log-params-norm",
    "--log-progress",
    "--log-throughput",
    "--log-timers-to-tensorboard",
    "--log-validation-ppl-to-tensorboard",
    "--log-world-size-to-tensorboard",
    "--manual-gc",
    "--mock-data",
    "--no-bias-dropout-fusion",
    "--no-bias-gelu-fusion",
    "--no-bias-swiglu-fusion",
    "--no-check-for-nan-in-loss-and-grad",
    "--no-create-attention-mask-in-dataloader",
    "--no-gradient-accumulation-fusion",
    "--no-load-optim",
    "--no-load-rng",
    "--no-masked-softmax-fusion",
    "--no-mmap-bin-files",
    "--no-overlap-p2p-communication",
    "--no-persist-layer-norm",
    "--no-rope-fusion",
    "--no-save-optim",
    "--no-save-rng",
    "--no-scatter-gather-tensors-in-pipeline",
    "--override-opt_param-scheduler",
    "--overlap-grad-reduce",
    "--overlap-p2p-communication-warmup-flush",
    "--overlap-param-gather",
    "--overlap-param-gather-with-optimizer-step",
    "--profile",
    "--qk-layernorm",
    "--recompute-activations",
    "--reset-attention-mask",
    "--reset-position-ids",
    "--reuse-grad-buf-for-mxfp8-param-ag",
    "--sequence-parallel",
    "--standalone",
    "--swiglu",
    "--test-mode",
    "--tp-comm-overlap",
    "--untie-embeddings-and-output-weights",
    "--use-checkpoint-args",
    "--use-dist-ckpt",
    "--use-distributed-optimizer",
    "--use-flash-attn",
    "--use-mcore-models",
    "--use-megatron-fsdp",
    "--use-megatron-fsdp-v2",
    "--use-precision-aware-optimizer",
    "--use-rope-scaling",
    "--use-rotary-position-embeddings"};

// As many values as there are.
constexpr std::array<std::string_view, 5> kLists = {"--data-path", "--train-data-path",
                                                    "--valid-data-path", "--test-data-path",
                                                    "--data-args-path"};

// Read into the plan, but of no price.
constexpr std::array<std::string_view, 13> kUnpriced = {"--lr",
                                                        "--min-lr",
                                                        "--lr-warmup-iters",
                                                        "--lr-warmup-fraction",
                                                        "--lr-decay-iters",
                                                        "--train-iters",
                                                        "--lr-decay-style",
                                                        "--weight-decay",
                                                        "--adam-beta1",
                                                        "--adam-beta2",
                                                        "--adam-eps",
                                                        "--seed",
                                                        "--clip-grad"};

// torchrun takes its flags with either.
constexpr std::array<std::string_view, 16> kLauncherFlags = {
    "--nproc-per-node", "--nnodes",       "--node-rank",        "--master-addr",
    "--master-port",    "--rdzv-backend", "--rdzv-endpoint",    "--rdzv-id",
    "--rdzv-conf",      "--max-restarts", "--log-dir",          "--local-addr",
    "--num-gpus",       "--num-nodes",    "--monitor-interval", "--start-method"};

constexpr std::array<std::string_view, 9> kListNames = {"ARG", "OPTION", "FLAG", "EXTRA", "[@]",
                                                        "[*]", "$@",     "$*",   "OPTS"};

bool isOpenAlone(const std::string& text) {
  return text.front() == kOpenBegin && text.back() == kOpenEnd;
}

// Named like a list of arguments, or written like one: no value of a flag. Right behind
// a flag that takes as many as there are, an array is the values, unless it is named so.
bool isOpenList(const std::string& text, bool takesMany) {
  std::string upper = text;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return std::any_of(kListNames.begin(), kListNames.end(), [&](std::string_view name) {
    const bool isArray = name == "[@]" || name == "[*]";
    return upper.find(name) != std::string::npos && !(isArray && takesMany);
  });
}

// "$X is set outside of this file: write its value..."
std::string whatIsOpen(const std::string& text, const char* joint = "") {
  const size_t begin = text.find(kOpenBegin);
  const size_t end = std::min(text.find(kOpenEnd), text.size());
  const std::string written = text.substr(begin + 1, end - begin - 1);
  const bool isNumber = written.starts_with("$((");
  const bool isOutput = written.starts_with("$(") || written.starts_with("`") ||
                        written.starts_with("<(") || written.starts_with(">(");
  const char second = written.size() > 1 ? written[1] : '\0';
  const char* const why = isNumber   ? "has parts that are not known"
                          : isOutput ? "is the output of a command, which is not run"
                          : std::string_view("@*#123456789").find(second) != std::string_view::npos
                              ? "is given by whoever runs this file"
                              : "is set outside of this file, or in a way that is not followed";
  return fmt::format("{}{} {}: write its value, or check the command line that Megatron prints",
                     written, joint, why);
}

}  // namespace

Flags::Flags(const MegatronLaunch& launch, std::string file)
    : file_(std::move(file)), line_(launch.line) {
  read(launch.launcher, true);
  last_.clear();
  read(launch.program, false);
}

void Flags::read(const std::vector<ShellText>& words, bool isLauncher) {
  for (const ShellText& word : words) {
    const std::string& text = word.text;
    const size_t equals = text.find('=');
    if (text.starts_with("--") && text.size() > 2 && text[2] != kOpenBegin &&
        std::min(equals, text.size()) <= text.find(kOpenBegin)) {
      last_ = text.substr(0, equals);
      std::string dashed = last_;
      std::replace(dashed.begin() + 2, dashed.end(), '_', '-');
      if (isIn(kLauncherFlags, dashed)) last_ = dashed;
      Flag& flag = flags_[last_] = Flag{{}, word.line};
      if (equals != std::string::npos) flag.values.push_back(text.substr(equals + 1));
    } else if (!text.empty() && (isOpenAlone(text) || text.starts_with("--"))) {
      readOpen(word, isLauncher);
    } else if (!last_.empty()) {
      flags_[last_].values.push_back(text);
    }
  }
}

// A word of which nothing is known is the value of the flag before it, if that takes one; else it
// may be anything.
void Flags::readOpen(const ShellText& word, bool isLauncher) {
  const auto flag = flags_.find(last_);
  const bool isValue =
      flag != flags_.end() && hasOpenPart(word.text) && isOpenAlone(word.text) &&
      !isOpenList(word.text, isIn(kLists, last_) && flag->second.values.empty()) &&
      (isIn(kLists, last_) || (flag->second.values.empty() && !isIn(kSwitches, last_)));
  if (isValue) {
    flag->second.values.push_back(word.text);
    return;
  }
  if (!hasOpenPart(word.text)) return;  // a lone --
  const std::string message = fmt::format("{}:{}: {}", file_, word.line, whatIsOpen(word.text));
  if (isLauncher)
    openLauncherWord_ = message + ", or give --gpus";
  else if (error_.ok())
    error_ = invalidArgument(message);
}

bool Flags::has(const std::string& name) {
  used_.insert(name);
  return flags_.contains(name);
}

void Flags::imply(const std::string& name, const std::string& implied) {
  if (has(name)) flags_.try_emplace(implied, Flag{{}, flags_.at(name).line});
}

std::optional<std::string> Flags::textOrOpen(const std::string& name) {
  if (!has(name)) return std::nullopt;
  const Flag& flag = flags_.at(name);
  if (!flag.values.empty()) return flag.values.front();
  fail(name, "has no value");
  return std::nullopt;
}

std::optional<std::string> Flags::text(const std::string& name) {
  std::optional<std::string> given = textOrOpen(name);
  if (!given || !hasOpenPart(*given)) return given;
  if (isIn(kUnpriced, name))
    open_.insert(name);
  else
    fail(name, "is " + whatIsOpen(*given, ", which"));
  return std::nullopt;
}

std::vector<std::string> Flags::texts(const std::string& name) {
  if (!text(name) || !error_.ok()) return {};
  for (const std::string& value : flags_.at(name).values)
    if (hasOpenPart(value)) fail(name, "is " + whatIsOpen(value, ", which"));
  return flags_.at(name).values;
}

int64_t Flags::count(const std::string& name, int64_t absent) {
  return value<int64_t>(
      name, absent, [](int64_t v) { return v >= 0 && v <= (1 << 30); },
      "a whole number of at most 2^30");
}

double Flags::real(const std::string& name, double absent) {
  return value<double>(name, absent, [](double v) { return v >= 0; }, "a number of at least 0");
}

std::string Flags::choice(const std::string& name, const std::vector<std::string>& choices,
                          const std::string& absent, const std::vector<std::string>& unpriced,
                          const std::string& nearest) {
  const std::optional<std::string> given = text(name);
  if (!given) return absent;
  if (!isIn(choices, *given))
    fail(name, whyNotAmong(*given, choices, nearest.empty() ? absent : nearest, unpriced));
  return *given;
}

void Flags::fail(const std::string& name, const std::string& message) {
  if (!error_.ok()) return;
  const auto flag = flags_.find(name);
  error_ = invalidArgument(fmt::format(
      "{}:{}: {} {}", file_, flag == flags_.end() ? line_ : flag->second.line, name, message));
}

Status Flags::verdict() const {
  if (!error_.ok()) return error_;
  constexpr size_t kShortest = 12, kMostTypos = 2;   // shorter ones are alike by chance
  const auto withoutDigits = [](std::string name) {  // --fp4-recipe is no misspelt --fp8-recipe
    std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
    return name;
  };
  for (const auto& [name, flag] : flags_)
    for (const std::string& asked : used_)
      if (!used_.contains(name) && !isIn(kSwitches, name) && !flags_.contains(asked) &&
          asked.size() >= kShortest && spec::editDistance(name, asked) <= kMostTypos &&
          withoutDigits(name) != withoutDigits(asked))
        return invalidArgument(
            fmt::format("{}:{}: unknown flag {}; did you mean {}?", file_, flag.line, name, asked));
  return {};
}

std::vector<std::string> Flags::unused() const {
  std::vector<std::string> names;
  for (const auto& [name, flag] : flags_)
    if (!used_.contains(name) || open_.contains(name)) names.push_back(name);
  return names;
}

template <typename T, typename IsValid>
T Flags::value(const std::string& name, T absent, IsValid isValid, const char* expected) {
  const std::optional<std::string> given = text(name);
  if (!given) return absent;
  T parsed{};
  const char* end = given->data() + given->size();
  const auto [stop, code] = std::from_chars(given->data(), end, parsed);
  if (code == std::errc{} && stop == end && isValid(parsed)) return parsed;
  fail(name, fmt::format("is {}; expected {}", spec::quoteForMessage(*given), expected));
  return absent;
}

}  // namespace trireme::codegen
