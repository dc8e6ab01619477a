// tiles.h for a host compiler: whole tiles in arrays.
#pragma once
#include <cmath>

namespace trireme::runtime::cuda {
inline namespace on_host {

inline float multiplyAdd(float a, float b, float c) { return a * b + c; }
inline float exp2Of(float x) { return std::exp2(x); }

struct TileRow {
  int index;
};

class PerRow {
 public:
  float at(TileRow row) const { return values_[row.index]; }
  // f(row): the value of a row.
  template <typename F>
  void fill(F f) {
    for (int i = 0; i < 16; ++i) values_[i] = f(TileRow{i});
  }
  // f(row): once per row.
  template <typename F>
  static void forEach(F f) {
    for (int i = 0; i < 16; ++i) f(TileRow{i});
  }

 private:
  float values_[16] = {};
};

template <typename V>
class PerWarp {
 public:
  template <typename F>
  void forEach(F f) {
    for (int warp = 0; warp < 2; ++warp) f(warp, values_[warp]);
  }

 private:
  V values_[2];
};
inline int warpsOfTile() { return 2; }

template <typename T, int R, int C>
class SharedTile {
 public:
  template <typename F>
  void load(F rowAt) {
    for (int i = 0; i < R; ++i)
      for (int c = 0; c < C; ++c) {
        const T* row = rowAt(i);
        values_[i][c] = row == nullptr ? 0 : value(row[c]);
      }
  }
  const float* row(int i) const { return values_[i]; }

 private:
  float values_[R][C];
};

template <int N>
class SharedNumbers {
 public:
  template <typename F>
  void load(F at) {
    for (int i = 0; i < N; ++i) values_[i] = at(i) == nullptr ? 0 : *at(i);
  }
  float at(int i) const { return values_[i]; }

 private:
  float values_[N];
};

template <typename Stage, typename L, typename U>
void forEachStage(int begin, int end, int step, L load, U use) {
  Stage stage;
  for (int first = begin; first < end; first += step) {
    load(first, stage);
    use(first, stage);
  }
}

template <typename T, int K>
class Factor {
 public:
  template <typename F>
  void load(F rowAt) {
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < 16 * K; ++k) {
        const T* row = rowAt(i);
        values_[i][k] = row == nullptr ? 0 : value(row[k]);
      }
  }
  PerRow dotRows(const Factor& other) const {
    PerRow result;
    result.fill([&](TileRow row) {
      float sum = 0;
      for (int k = 0; k < 16 * K; ++k) sum += at(row.index, k) * other.at(row.index, k);
      return sum;
    });
    return result;
  }
  float at(int row, int k) const { return values_[row][k]; }
  void set(int row, int k, T x) { values_[row][k] = value(x); }

 private:
  float values_[16][16 * K] = {};
};

template <int N>
class Sums {
 public:
  template <typename F>
  void forEach(F f) {
    for (int i = 0; i < 16; ++i)
      for (int n = 0; n < 8 * N; ++n) f(TileRow{i}, n, values_[i][n]);
  }
  template <typename T, int K, int R, int C>
  void addByRows(const Factor<T, K>& a, const SharedTile<T, R, C>& b, int first) {
    for (int n = 0; n < 8 * N; ++n)
      for (int i = 0; i < 16; ++i)
        for (int k = 0; k < 16 * K; ++k) values_[i][n] += a.at(i, k) * b.row(first + n)[k];
  }
  template <typename T, int K, int R, int C>
  void addByColumns(const Factor<T, K>& a, const SharedTile<T, R, C>& b, int first) {
    for (int k = 0; k < 16 * K; ++k)
      for (int i = 0; i < 16; ++i)
        for (int n = 0; n < 8 * N; ++n) values_[i][n] += a.at(i, k) * b.row(first + k)[n];
  }
  template <typename T, typename F>
  void storeRows(F rowAt) const {
    for (int i = 0; i < 16; ++i)
      if (T* row = rowAt(i); row != nullptr)
        for (int n = 0; n < 8 * N; ++n) store(row[n], values_[i][n]);
  }
  template <typename F>
  void combine(const Sums& other, F f) {
    for (int i = 0; i < 16; ++i)
      for (int n = 0; n < 8 * N; ++n)
        values_[i][n] = f(TileRow{i}, n, values_[i][n], other.values_[i][n]);
  }
  template <typename T>
  Factor<T, N / 2> toFactor() const {
    Factor<T, N / 2> factor;
    for (int i = 0; i < 16; ++i)
      for (int n = 0; n < 8 * N; ++n) {
        T rounded;
        store(rounded, values_[i][n]);
        factor.set(i, n, rounded);
      }
    return factor;
  }
  PerRow rowMax() const {
    PerRow result;
    result.fill([&](TileRow row) {
      float largest = values_[row.index][0];
      for (float x : values_[row.index]) largest = largerOf(largest, x);
      return largest;
    });
    return result;
  }
  PerRow rowSum() const {
    PerRow result;
    result.fill([&](TileRow row) {
      float sum = 0;
      for (float x : values_[row.index]) sum += x;
      return sum;
    });
    return result;
  }

 private:
  float values_[16][8 * N] = {};
};

}  // namespace on_host
}  // namespace trireme::runtime::cuda
