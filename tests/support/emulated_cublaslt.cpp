// cuBLASLt as far as Trireme uses it: column-major products.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "runtime/kernels/bf16.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::testing {
namespace {

namespace cuda = runtime::cuda;
constexpr int kStatusInvalidValue = 7, kExecutionFailed = 13;  // cublasStatus_t

struct Desc {
  int computeType = 0, scaleType = 0;
  int transposeA = 0, transposeB = 0;
  int epilogue = 1;  // none
  const char* bias = nullptr;
  char* aux = nullptr;
  int64_t auxLeading = 0;

  bool hasAux() const { return (epilogue & 128) != 0; }
  bool writesAux() const { return epilogue == cuda::kEpilogueGeluAuxBias; }
  bool hasBias() const { return (epilogue & cuda::kEpilogueBias) != 0; }
};
struct Layout {
  int type = 0;
  int64_t rows = 0, columns = 0, leading = 0;
};
struct Preference {
  std::map<int, uint64_t> values;
};
// Stands in the algorithm's place: which one it is, for what, and what it was promised.
struct Algorithm {
  uint32_t magic, index;
  uint16_t alignmentA, alignmentB, alignmentC;
  uint32_t types;
  int64_t m, n, k, workspaceBytes;
};
static_assert(sizeof(Algorithm) <= sizeof(cuda::MatmulHeuristic::algorithm));
constexpr uint32_t kMagic = 0x616C676F;

Algorithm algorithmOf(const void* opaque) {
  Algorithm algorithm;
  std::memcpy(&algorithm, opaque, sizeof(algorithm));
  return algorithm;
}

double load(const void* data, int type, int64_t i) {
  if (type == cuda::kTypeF64) return static_cast<const double*>(data)[i];
  if (type == cuda::kTypeF32) return static_cast<const float*>(data)[i];
  if (type == cuda::kTypeF16) return runtime::toFloat(static_cast<const runtime::F16*>(data)[i]);
  return runtime::toFloat(static_cast<const runtime::Bf16*>(data)[i]);
}
void save(void* data, int type, int64_t i, double value) {
  if (type == cuda::kTypeF64)
    static_cast<double*>(data)[i] = value;
  else if (type == cuda::kTypeF32)
    static_cast<float*>(data)[i] = static_cast<float>(value);
  else if (type == cuda::kTypeF16)
    static_cast<runtime::F16*>(data)[i] = runtime::toF16(value);
  else
    static_cast<runtime::Bf16*>(data)[i] = runtime::toBf16(value);
}

bool isAligned(const void* data, uint64_t alignment) {
  return alignment != 0 && reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

// gelu(x) = x geluShare(x), in the tanh form, and its derivative.
constexpr double kGeluScale = 0.7978845608028654, kGeluCube = 0.044715;
double geluShare(double x) {
  return 0.5 * (1 + std::tanh(kGeluScale * (x + kGeluCube * x * x * x)));
}
double geluSlope(double x) {
  const double t = std::tanh(kGeluScale * (x + kGeluCube * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluScale * (1 + 3 * kGeluCube * x * x);
}

// An f32 with the 10 bits of mantissa that TF32 has, to nearest.
double toTf32(double factor) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(factor));
  return std::bit_cast<float>((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu);
}

struct Product {
  Desc desc;
  Layout la, lb, lc;
  const void *a, *b;
  void* c;
  double alpha, beta;

  int64_t m() const { return lc.rows; }
  int64_t n() const { return lc.columns; }
  int64_t k() const { return desc.transposeA != 0 ? la.rows : la.columns; }
  double count() const {
    return static_cast<double>(m()) * static_cast<double>(n()) * static_cast<double>(k());
  }
  std::string name() const {
    if (desc.computeType == cuda::kComputeTf32) return "matmul_tf32";
    return la.type == cuda::kTypeF64   ? "matmul_f64"
           : la.type == cuda::kTypeF32 ? "matmul_f32"
           : la.type == cuda::kTypeF16 ? "matmul_f16"
                                       : "matmul_bf16";
  }
  uint32_t types() const {
    return static_cast<uint32_t>(desc.computeType << 24 | desc.epilogue << 16 | la.type << 8 |
                                 lc.type);
  }
  bool isFor(const Algorithm& algorithm) const {
    return algorithm.magic == kMagic && algorithm.m == m() && algorithm.n == n() &&
           algorithm.k == k() && algorithm.types == types();
  }
  bool fits() const {
    const int compute = desc.computeType;
    if (la.type == cuda::kTypeF64   ? compute != cuda::kComputeF64
        : la.type == cuda::kTypeF32 ? compute != cuda::kComputeF32 && compute != cuda::kComputeTf32
                                    : compute != cuda::kComputeF32)
      return false;
    const int64_t aRows = desc.transposeA != 0 ? la.columns : la.rows;
    const int64_t bRows = desc.transposeB != 0 ? lb.columns : lb.rows;
    const int64_t bColumns = desc.transposeB != 0 ? lb.rows : lb.columns;
    return aRows == m() && bRows == k() && bColumns == n() && la.leading >= la.rows &&
           lb.leading >= lb.rows && lc.leading >= lc.rows && la.type == lb.type;
  }
  // Of every element the sum in the order of k; a row of sums at a time, which compilers turn into
  // vector code.
  void run() const {
    const std::vector<double> x = factor(a, la, desc.transposeA != 0);
    const std::vector<double> y = factor(b, lb, desc.transposeB == 0);
    std::vector<double> sums(static_cast<size_t>(m()));
    for (int64_t j = 0; j < n(); ++j) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int64_t l = 0; l < k(); ++l) {
        const double* row = x.data() + l * m();
        const double scale = y[static_cast<size_t>(l * n() + j)];
        for (int64_t i = 0; i < m(); ++i) sums[static_cast<size_t>(i)] += row[i] * scale;
      }
      for (int64_t i = 0; i < m(); ++i) {
        const int64_t at = i + j * lc.leading;
        const double value =
            alpha * sums[static_cast<size_t>(i)] + (beta == 0 ? 0 : beta * load(c, lc.type, at));
        save(c, lc.type, at, finish(value, i, j));
      }
    }
  }
  // As the products take it: k rows without gaps between them, of the m or n elements each that lie
  // `across` the columns of `layout` or along them.
  std::vector<double> factor(const void* data, const Layout& layout, bool across) const {
    const int64_t length = across ? layout.columns : layout.rows;
    std::vector<double> rows(static_cast<size_t>(k() * length));
    for (int64_t l = 0; l < k(); ++l)
      for (int64_t i = 0; i < length; ++i) {
        const double value =
            load(data, layout.type, across ? l + i * layout.leading : i + l * layout.leading);
        rows[static_cast<size_t>(l * length + i)] =
            desc.computeType == cuda::kComputeTf32 ? toTf32(value) : value;
      }
    return rows;
  }
  double finish(double value, int64_t i, int64_t j) const {
    const int64_t inAux = i + j * desc.auxLeading;
    if (desc.hasBias()) value += load(desc.bias, lc.type, i);
    if (desc.writesAux()) save(desc.aux, lc.type, inAux, value);
    if (desc.epilogue == cuda::kEpilogueGeluGrad)
      return value * geluSlope(load(desc.aux, lc.type, inAux));
    return (desc.epilogue & 32) != 0 ? value * geluShare(value) : value;
  }
  // What NVIDIA's header asks of an epilogue's operands.
  bool takesEpilogue() const {
    if (desc.epilogue == 1) return true;
    const bool isFloat = lc.type != cuda::kTypeF64;
    if (!isFloat || la.type != lc.type) return false;
    if (desc.hasBias() && desc.bias == nullptr) return false;
    return !desc.hasAux() || (desc.auxLeading % 8 == 0 && desc.auxLeading >= m() &&
                              desc.aux != nullptr && isAligned(desc.aux, 16));
  }
};

Product productOf(void* desc, void* layoutA, void* layoutB, void* layoutC) {
  return {*static_cast<Desc*>(desc),
          *static_cast<Layout*>(layoutA),
          *static_cast<Layout*>(layoutB),
          *static_cast<Layout*>(layoutC),
          nullptr,
          nullptr,
          nullptr,
          1,
          0};
}

}  // namespace

struct EmulatedCublasLt {
  static EmulatedGpu& gpu() { return *EmulatedGpu::instance(); }

  template <typename T>
  static int make(void** out, T value) {
    auto made = std::make_shared<T>(std::move(value));
    *out = made.get();
    const std::lock_guard lock(gpu().mutex_);
    gpu().matmulObjects_[*out] = std::move(made);
    return 0;
  }
  static int destroyObject(void* object) {
    const std::lock_guard lock(gpu().mutex_);
    return gpu().matmulObjects_.erase(object) == 1 ? 0 : kStatusInvalidValue;
  }

  static int create(void** handle) { return make(handle, 0); }
  // It waits for the GPU.
  static int destroy(void* handle) {
    const std::lock_guard lock(gpu().mutex_);
    for (const auto& [key, stream] : gpu().streams_)
      for (const EmulatedGpu::Work& work : stream->queue)
        if (work.endless) gpu().fault("cuBLASLt ends beside work that does not");
    return gpu().matmulObjects_.erase(handle) == 1 ? 0 : kStatusInvalidValue;
  }
  static int createDesc(void** desc, int computeType, int scaleType) {
    return make(desc, Desc{computeType, scaleType});
  }
  static int destroyDesc(void* desc) { return destroyObject(desc); }
  static int setDesc(void* desc, int attribute, const void* value, size_t bytes) {
    auto& d = *static_cast<Desc*>(desc);
    const auto set = [&](auto& field) {
      if (bytes != sizeof(field)) return kStatusInvalidValue;
      std::memcpy(&field, value, bytes);
      return 0;
    };
    if (attribute == cuda::kDescTransposeA) return set(d.transposeA);
    if (attribute == cuda::kDescTransposeB) return set(d.transposeB);
    if (attribute == cuda::kDescEpilogue) return set(d.epilogue);
    if (attribute == cuda::kDescBiasPointer) return set(d.bias);
    if (attribute == cuda::kDescAuxPointer) return set(d.aux);
    return attribute == cuda::kDescAuxLeading ? set(d.auxLeading) : kStatusInvalidValue;
  }
  static int createLayout(void** layout, int type, uint64_t rows, uint64_t columns,
                          int64_t leading) {
    return make(layout,
                Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
  }
  static int destroyLayout(void* layout) { return destroyObject(layout); }
  static int createPreference(void** preference) { return make(preference, Preference{}); }
  static int destroyPreference(void* p) { return destroyObject(p); }
  static int setPreference(void* preference, int attribute, const void* value, size_t bytes) {
    uint64_t& stored = static_cast<Preference*>(preference)->values[attribute];
    stored = 0;
    std::memcpy(&stored, value, bytes);
    return 0;
  }
  static uint32_t numAlgorithms() {
    return std::max<uint32_t>(1, static_cast<uint32_t>(gpu().options_.matmulSeconds.size()));
  }
  static int heuristic(void*, void* desc, void* a, void* b, void* c, void*, void* preference,
                       int requested, cuda::MatmulHeuristic* results, int* returned) {
    auto& values = static_cast<Preference*>(preference)->values;
    if (requested < 1 || !values.contains(cuda::kPreferenceWorkspaceBytes))
      return kStatusInvalidValue;
    const std::lock_guard lock(gpu().mutex_);
    if (values[cuda::kPreferenceReductionSchemes] != cuda::kReduceInComputeType)
      return gpu().fault("algorithms asked for whose sums do not repeat");
    const Product product = productOf(desc, a, b, c);
    const bool isRefused = product.desc.epilogue != 1 && gpu().options_.refusesEpilogues;
    if (isRefused || !product.takesEpilogue()) return cuda::kStatusNotSupported;
    const auto alignment = [&](int attribute) { return static_cast<uint16_t>(values[attribute]); };
    Algorithm algorithm{kMagic, 0, alignment(cuda::kPreferenceAlignmentA),
                        alignment(cuda::kPreferenceAlignmentB),
                        alignment(cuda::kPreferenceAlignmentC), product.types(), product.m(),
                        product.n(), product.k(),
                        // Whatever it may have, so that its place is checked.
                        static_cast<int64_t>(values[cuda::kPreferenceWorkspaceBytes])};
    for (; algorithm.index < numAlgorithms() && algorithm.index < static_cast<uint32_t>(requested);
         ++algorithm.index) {
      cuda::MatmulHeuristic& result = results[algorithm.index];
      result = {};
      result.workspaceBytes = static_cast<size_t>(algorithm.workspaceBytes);
      std::memcpy(result.algorithm, &algorithm, sizeof(algorithm));
    }
    *returned = static_cast<int>(algorithm.index);
    return 0;
  }
  static int checkAlgorithm(void*, void* desc, void* a, void* b, void* c, void*, const void* opaque,
                            cuda::MatmulHeuristic* result) {
    const Algorithm algorithm = algorithmOf(opaque);
    if (!productOf(desc, a, b, c).isFor(algorithm)) return kStatusInvalidValue;
    *result = {};
    result->workspaceBytes = static_cast<size_t>(algorithm.workspaceBytes);
    return 0;
  }
  static size_t version() { return gpu().options_.cublasLtVersion; }
  static bool hasMemory(const Product& product) {
    const auto size = static_cast<size_t>(product.lc.type == cuda::kTypeF32 ? 4 : 2);
    const auto m = static_cast<size_t>(product.m()), n = static_cast<size_t>(product.n());
    const Desc& desc = product.desc;
    return (!desc.hasBias() || gpu().isAllocated(desc.bias, m * size)) &&
           (!desc.hasAux() || gpu().isAllocated(desc.aux, m * n * size));
  }
  static int matmul(void*, void* desc, const void* alpha, const void* a, void* layoutA,
                    const void* b, void* layoutB, const void* beta, const void* c, void* layoutC,
                    void* d, void*, const void* chosen, void* workspace, size_t workspaceBytes,
                    void* stream) {
    Product product = productOf(desc, layoutA, layoutB, layoutC);
    product.a = a, product.b = b, product.c = d;
    product.alpha = load(alpha, product.desc.scaleType, 0);
    product.beta = load(beta, product.desc.scaleType, 0);
    const Algorithm algorithm = algorithmOf(chosen);
    if (!product.fits() || c != d) return kStatusInvalidValue;
    const std::lock_guard lock(gpu().mutex_);
    const auto& options = gpu().options_;
    if (!hasMemory(product)) return gpu().fault("an epilogue's operand that is not allocated");
    if (!product.isFor(algorithm) || !product.takesEpilogue() ||
        !isAligned(a, algorithm.alignmentA) || !isAligned(b, algorithm.alignmentB) ||
        !isAligned(d, algorithm.alignmentC) ||
        static_cast<int>(algorithm.index) == options.refusedAlgorithm)
      return cuda::kStatusNotSupported;
    if (std::ssize(gpu().products_) == options.failsAtMatmul) return kExecutionFailed;
    if (workspaceBytes > 0 &&
        (!isAligned(workspace, 256) || !gpu().isAllocated(workspace, workspaceBytes)))
      return kStatusInvalidValue;
    gpu().products_.push_back(
        {product.m(), product.n(), product.k(), algorithm.index, stream, product.desc.epilogue});
    const double seconds =
        options.matmulSeconds.empty()
            ? gpu().secondsOf({.name = product.name(), .products = product.count()})
            : options.matmulSeconds[algorithm.index];
    if (options.isIdle) return gpu().submit(stream, nullptr, [] {}, seconds);
    return gpu().submit(stream, nullptr, [product] { product.run(); }, seconds);
  }
};

const cuda::CublasLtApi& emulatedCublasLt() {
  static const cuda::CublasLtApi table = [] {
    cuda::CublasLtApi api;
#define TRIREME_FILL(field, symbol, parameters) api.field = EmulatedCublasLt::field;
    TRIREME_CUBLASLT_FUNCTIONS(TRIREME_FILL)
#undef TRIREME_FILL
    api.version = EmulatedCublasLt::version;
    return api;
  }();
  return table;
}

}  // namespace trireme::testing
