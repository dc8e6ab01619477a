// A map from disjoint byte ranges to states: what is known about each byte of an arena.
#pragma once
#include <algorithm>
#include <iterator>
#include <map>

#include "ir/program/walk.h"

namespace trireme::program {

template <typename State>
class IntervalMap {
 public:
  // The bytes of `span` get `state`, whatever they had.
  void assign(Span span, const State& state) {
    if (span.begin >= span.end) return;
    const auto piece = pieces_.find(span.begin);
    if (piece != pieces_.end() && piece->second.end == span.end) {  // as a rule
      piece->second.state = state;
      return;
    }
    cut(span.begin);
    cut(span.end);
    pieces_.erase(pieces_.lower_bound(span.begin), pieces_.lower_bound(span.end));
    pieces_.emplace(span.begin, Piece{span.end, state});
  }

  // Calls visit(piece, state) for the pieces of `span` from left to right; state is null in gaps.
  template <typename Visit>
  void visit(Span span, Visit&& visit) const {
    int64_t at = span.begin;
    auto it = pieces_.upper_bound(at);
    if (it != pieces_.begin() && std::prev(it)->second.end > at) --it;
    while (at < span.end) {
      if (it == pieces_.end() || it->first >= span.end) {
        visit(Span{at, span.end}, static_cast<const State*>(nullptr));
        return;
      }
      if (it->first > at) visit(Span{at, it->first}, static_cast<const State*>(nullptr));
      const Span piece{std::max(at, it->first), std::min(span.end, it->second.end)};
      visit(piece, &it->second.state);
      at = piece.end;
      ++it;
    }
  }

  void clear() { pieces_.clear(); }

 private:
  struct Piece {
    int64_t end;
    State state;
  };

  // Makes `at` a border.
  void cut(int64_t at) {
    auto it = pieces_.upper_bound(at);
    if (it == pieces_.begin()) return;
    --it;
    if (it->first == at || it->second.end <= at) return;
    pieces_.emplace(at, it->second);
    it->second.end = at;
  }

  std::map<int64_t, Piece> pieces_;
};

}  // namespace trireme::program
