// tiles.h for a host compiler: whole tiles in arrays.
#pragma once
#include <cmath>

namespace trireme::runtime::cuda {
inline namespace on_host {

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
  template <typename T, int K, typename F>
  void addByRows(const Factor<T, K>& a, F rowAt) {
    for (int n = 0; n < 8 * N; ++n)
      if (const T* row = rowAt(n); row != nullptr)
        for (int i = 0; i < 16; ++i)
          for (int k = 0; k < 16 * K; ++k) values_[i][n] += a.at(i, k) * value(row[k]);
  }
  template <typename T, int K, typename F>
  void addByColumns(const Factor<T, K>& a, F rowAt) {
    for (int k = 0; k < 16 * K; ++k)
      if (const T* row = rowAt(k); row != nullptr)
        for (int i = 0; i < 16; ++i)
          for (int n = 0; n < 8 * N; ++n) values_[i][n] += a.at(i, k) * value(row[n]);
  }
  template <typename F>
  void combine(const Sums& other, F f) {
    for (int i = 0; i < 16; ++i)
      for (int n = 0; n < 8 * N; ++n)
        values_[i][n] = f(TileRow{i}, values_[i][n], other.values_[i][n]);
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
