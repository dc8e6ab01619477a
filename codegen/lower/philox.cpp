#include "codegen/lower/philox.h"

#include "ir/base/status.h"

namespace trireme::codegen {
namespace {

using namespace mlir;

// Words live in the low halves of i64 lanes, where a 32 x 32 -> 64 bit product is one instruction.
// The high halves hold garbage between rounds.
class Philox {
 public:
  Philox(VectorEmitter& e, int64_t lanes)
      : e_(e), lanes_(lanes), type_(e.vectorOf(e.b.getI64Type(), lanes)) {}

  std::array<Value, 4> words(std::array<Value, 4> c, const PhiloxKey& key) {
    Value low = key.low, high = key.high;
    for (int round = 0; round < 10; ++round) {
      const Value p0 = e_.mulInt(lowHalf(c[0]), e_.constantInt(type_, 0xD2511F53u));
      const Value p1 = e_.mulInt(lowHalf(c[2]), e_.constantInt(type_, 0xCD9E8D57u));
      c = {exclusiveOr(exclusiveOr(highHalf(p1), c[1]), spread(low)), p1,
           exclusiveOr(exclusiveOr(highHalf(p0), c[3]), spread(high)), p0};
      low = e_.addInt(low, e_.constantInt(low.getType(), 0x9E3779B9u));
      high = e_.addInt(high, e_.constantInt(high.getType(), 0xBB67AE85u));
    }
    return c;
  }

  Value lowHalf(Value v) { return e_.b.create<arith::AndIOp>(v, mask()); }
  Value highHalf(Value v) { return e_.b.create<arith::ShRUIOp>(v, e_.constantInt(type_, 32)); }
  Value exclusiveOr(Value x, Value y) { return e_.b.create<arith::XOrIOp>(x, y); }
  // Low half of x, low half of y.
  Value pair(Value x, Value y) {
    const Value up = e_.b.create<arith::ShLIOp>(y, e_.constantInt(type_, 32));
    return e_.b.create<arith::OrIOp>(lowHalf(x), up);
  }

 private:
  Value mask() { return e_.constantInt(type_, 0xffffffffu); }
  Value spread(Value word) {
    return e_.splat(e_.b.create<arith::ExtUIOp>(e_.b.getI64Type(), word), lanes_);
  }

  VectorEmitter& e_;
  int64_t lanes_;
  Type type_;
};

// Counters of the quads; `sample` fills the other two words.
std::array<Value, 4> counters(Philox& philox, VectorEmitter& e, Value quads, Value sample,
                              int64_t lanes) {
  const Value samples = e.splat(sample, lanes);
  return {quads, philox.highHalf(quads), samples, philox.highHalf(samples)};
}

}  // namespace

Value emitRandomWords(VectorEmitter& e, const PhiloxKey& key, Value sample, Value element,
                      bool aligned) {
  ImplicitLocOpBuilder& b = e.b;
  aligned &= !e.inWarps();  // A thread of a warp has no other lanes to serve.
  const int64_t lanes = aligned ? kLanes / 4 : kLanes;
  const Type type = e.vectorOf(b.getI64Type(), lanes), words = e.vectorOf(b.getI32Type());
  Philox philox(e, lanes);
  if (aligned) {
    const Value quad = b.create<arith::ShRUIOp>(element, e.integer(2));
    const Value quads = e.addInt(e.splat(quad, lanes), e.iota(lanes));
    const auto w = philox.words(counters(philox, e, quads, sample, lanes), key);
    // (w0, w1) and (w2, w3) of each quad as i64, then interleaved: lane order is element order.
    SmallVector<int64_t> interleaved;
    for (int64_t i = 0; i < lanes; ++i) interleaved.append({i, lanes + i});
    const Value all =
        b.create<vector::ShuffleOp>(philox.pair(w[0], w[1]), philox.pair(w[2], w[3]), interleaved);
    return b.create<vector::BitCastOp>(words, all);
  }
  const Value elements = e.addInt(e.splat(element, lanes), e.iota(lanes));
  const Value quads = b.create<arith::ShRUIOp>(elements, e.constantInt(type, 2));
  const auto w = philox.words(counters(philox, e, quads, sample, lanes), key);
  const Value within = b.create<arith::AndIOp>(elements, e.constantInt(type, 3));
  Value chosen = w[0];
  for (uint64_t i = 1; i < 4; ++i) {
    const Value here =
        b.create<arith::CmpIOp>(arith::CmpIPredicate::eq, within, e.constantInt(type, i));
    chosen = e.select(here, w[i], chosen);
  }
  return b.create<arith::TruncIOp>(words, chosen);
}

// With m the thread's place among the four of a quad: it makes the words of site m. A word is for
// the place of its number, so that thread m ^ r is sent word m ^ r, and sends word m of site m ^ r.
std::array<Value, kSitesOfWords> emitRandomWordsOfSites(VectorEmitter& e, const PhiloxKey& key,
                                                        Value sample, Value element) {
  TRIREME_CHECK(e.inWarps());
  ImplicitLocOpBuilder& b = e.b;
  constexpr int64_t kQuads = kLanes / 4;
  const auto shifted = [&](Value x, int64_t by) -> Value {
    return b.create<arith::ShRUIOp>(x, e.integer(by));
  };
  const Value lane = e.iota(), place = b.create<arith::AndIOp>(lane, e.integer(3));
  Value quad = e.addInt(shifted(element, 2), shifted(lane, 2));
  quad = e.addInt(quad, e.mulInt(place, e.integer(kQuads)));
  Philox philox(e, kLanes);
  std::array<Value, 4> words = philox.words(counters(philox, e, quad, sample, kLanes), key);
  for (Value& word : words) word = b.create<arith::TruncIOp>(b.getI32Type(), word);

  const auto bit = [&](int64_t number) -> Value {
    return b.create<arith::TruncIOp>(b.getI1Type(), shifted(place, number));
  };
  const Value low = bit(0), high = bit(1);
  // values[place ^ r]
  const auto at = [&](const std::array<Value, 4>& values, size_t r) -> Value {
    const Value even = e.select(low, values[1 ^ r], values[r]);
    return e.select(high, e.select(low, values[3 ^ r], values[2 ^ r]), even);
  };
  std::array<Value, 4> received;
  for (size_t r = 0; r < received.size(); ++r)
    received[r] = e.fromLane(at(words, r), static_cast<int64_t>(r));
  std::array<Value, kSitesOfWords> sites;
  for (size_t site = 0; site < sites.size(); ++site) sites[site] = at(received, site);
  return sites;
}

}  // namespace trireme::codegen
