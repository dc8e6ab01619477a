// cuBLASLt as far as Trireme uses it: column-major products, in plain loops.
#include <bit>
#include <cstring>

#include "runtime/kernels/bf16.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::testing {
namespace {

namespace cuda = runtime::cuda;
constexpr int kInvalidValue = 7, kNotSupported = 15;  // cublasStatus_t

struct Desc {
  int computeType = 0, scaleType = 0;
  int transposeA = 0, transposeB = 0;
};
struct Layout {
  int type = 0;
  int64_t rows = 0, columns = 0, leading = 0;
};
struct Preference {
  std::map<int, uint64_t> values;
};
// Stands in the algorithm's place: what it was promised.
struct Algorithm {
  uint64_t magic, alignmentA, alignmentB, alignmentC;
};
constexpr uint64_t kMagic = 0x616C676F;

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
  void run() const {
    for (int64_t j = 0; j < n(); ++j)
      for (int64_t i = 0; i < m(); ++i) {
        double sum = 0;
        for (int64_t l = 0; l < k(); ++l) {
          const int64_t atA = desc.transposeA != 0 ? l + i * la.leading : i + l * la.leading;
          const int64_t atB = desc.transposeB != 0 ? j + l * lb.leading : l + j * lb.leading;
          const double x = load(a, la.type, atA), y = load(b, lb.type, atB);
          sum += desc.computeType == cuda::kComputeTf32 ? toTf32(x) * toTf32(y) : x * y;
        }
        const int64_t at = i + j * lc.leading;
        save(c, lc.type, at, alpha * sum + (beta == 0 ? 0 : beta * load(c, lc.type, at)));
      }
  }
};

bool isAligned(const void* data, uint64_t alignment) {
  return alignment != 0 && reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

}  // namespace

struct EmulatedCublasLt {
  static EmulatedGpu& gpu() { return *EmulatedGpu::instance(); }

  template <typename T>
  static int make(void** out, T value) {
    *out = new T(std::move(value));
    const std::lock_guard lock(gpu().mutex_);
    gpu().matmulObjects_.insert(*out);
    return 0;
  }
  template <typename T>
  static int destroyObject(void* object) {
    const std::lock_guard lock(gpu().mutex_);
    if (gpu().matmulObjects_.erase(object) != 1) return kInvalidValue;
    delete static_cast<T*>(object);
    return 0;
  }

  static int create(void** handle) { return make(handle, 0); }
  static int destroy(void* handle) { return destroyObject<int>(handle); }
  static int createDesc(void** desc, int computeType, int scaleType) {
    return make(desc, Desc{computeType, scaleType});
  }
  static int destroyDesc(void* desc) { return destroyObject<Desc>(desc); }
  static int setDesc(void* desc, int attribute, const void* value, size_t bytes) {
    if (bytes != sizeof(int)) return kInvalidValue;
    int& field = attribute == cuda::kDescTransposeA ? static_cast<Desc*>(desc)->transposeA
                                                    : static_cast<Desc*>(desc)->transposeB;
    std::memcpy(&field, value, bytes);
    return 0;
  }
  static int createLayout(void** layout, int type, uint64_t rows, uint64_t columns,
                          int64_t leading) {
    return make(layout,
                Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading});
  }
  static int destroyLayout(void* layout) { return destroyObject<Layout>(layout); }
  static int createPreference(void** preference) { return make(preference, Preference{}); }
  static int destroyPreference(void* p) { return destroyObject<Preference>(p); }
  static int setPreference(void* preference, int attribute, const void* value, size_t bytes) {
    uint64_t& stored = static_cast<Preference*>(preference)->values[attribute];
    stored = 0;
    std::memcpy(&stored, value, bytes);
    return 0;
  }
  static int heuristic(void*, void*, void*, void*, void*, void*, void* preference, int requested,
                       cuda::MatmulHeuristic* results, int* returned) {
    const auto& values = static_cast<Preference*>(preference)->values;
    if (requested < 1 || !values.contains(cuda::kPreferenceWorkspaceBytes)) return kInvalidValue;
    const Algorithm algorithm{kMagic, values.at(cuda::kPreferenceAlignmentA),
                              values.at(cuda::kPreferenceAlignmentB),
                              values.at(cuda::kPreferenceAlignmentC)};
    results[0] = {};
    // Whatever it may have, so that its place is checked.
    results[0].workspaceBytes = values.at(cuda::kPreferenceWorkspaceBytes);
    std::memcpy(results[0].algorithm, &algorithm, sizeof(algorithm));
    *returned = 1;
    return 0;
  }
  static int matmul(void*, void* desc, const void* alpha, const void* a, void* layoutA,
                    const void* b, void* layoutB, const void* beta, const void* c, void* layoutC,
                    void* d, void*, const void* chosen, void* workspace, size_t workspaceBytes,
                    void* stream) {
    Product product{*static_cast<Desc*>(desc),
                    *static_cast<Layout*>(layoutA),
                    *static_cast<Layout*>(layoutB),
                    *static_cast<Layout*>(layoutC),
                    a,
                    b,
                    d,
                    load(alpha, static_cast<Desc*>(desc)->scaleType, 0),
                    load(beta, static_cast<Desc*>(desc)->scaleType, 0)};
    Algorithm algorithm;
    std::memcpy(&algorithm, chosen, sizeof(algorithm));
    if (!product.fits() || c != d) return kInvalidValue;
    if (algorithm.magic != kMagic || !isAligned(a, algorithm.alignmentA) ||
        !isAligned(b, algorithm.alignmentB) || !isAligned(d, algorithm.alignmentC))
      return kNotSupported;
    const std::lock_guard lock(gpu().mutex_);
    if (workspaceBytes > 0 &&
        (!isAligned(workspace, 256) || !gpu().isAllocated(workspace, workspaceBytes)))
      return kInvalidValue;
    if (gpu().options_.isIdle) return gpu().enqueue(stream, {[] {}});
    return gpu().enqueue(stream, {[product] { product.run(); }});
  }
};

const cuda::CublasLtApi& emulatedCublasLt() {
  static const cuda::CublasLtApi table = [] {
    cuda::CublasLtApi api;
#define TRIREME_FILL(field, symbol, parameters) api.field = EmulatedCublasLt::field;
    TRIREME_CUBLASLT_FUNCTIONS(TRIREME_FILL)
#undef TRIREME_FILL
    return api;
  }();
  return table;
}

}  // namespace trireme::testing
