#include "runtime/checkpoint/read_plan.hpp"

#include <algorithm>

namespace dslaunch::runtime {
namespace {

// One plan, from start to end.
class ReadPlanner {
 public:
  ReadPlanner(c10::IntArrayRef shape, const std::vector<SliceRange>& pieces, const SliceRange& request)
      : pieces_(pieces),
        request_(request),
        layout_(shape, request.slice),
        end_(std::min(request.end, layout_.numel())) {
    for (const auto& piece : pieces) layouts_.emplace_back(shape, piece.slice);
  }

  ReadPlan run() {
    for (int64_t done = request_.begin; done < end_;) {
      const auto [piece, end] = furthest_of_same_slice(done);
      if (piece) {
        plan_.copies.push_back({*piece, done - pieces_[*piece].begin, done - request_.begin, 1, end - done, 0, 0});
      } else {
        find_gaps(done, end);
        for (size_t other = 0; other < pieces_.size(); ++other) {
          if (pieces_[other].slice != request_.slice) copy_from_other_slice(other, done, end);
        }
      }
      done = end;
    }
    const int64_t beyond = std::max(request_.begin, end_);
    if (beyond < request_.end) add_gap(beyond, request_.end);
    return std::move(plan_);
  }

 private:
  // The piece of the request's slice that has the element and extends furthest, and where it ends; without such a
  // piece, where the next one begins. Nothing ends after end_.
  std::pair<std::optional<size_t>, int64_t> furthest_of_same_slice(int64_t element) const {
    std::optional<size_t> best;
    int64_t end = element, next = end_;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const auto& piece = pieces_[i];
      if (piece.slice != request_.slice || piece.end <= end) continue;
      if (piece.begin > element) {
        next = std::min(next, piece.begin);
      } else {
        best = i;
        end = piece.end;
      }
    }
    return best ? std::pair{best, std::min(end, end_)} : std::pair{best, next};
  }

  template <class Take>  // (position of a run in the whole parameter, position in the request's slice, length)
  void for_each_run(int64_t begin, int64_t end, const Take& take) const {
    for (const auto& runs : layout_.runs(begin, end)) {
      for (int64_t k = 0; k < runs.count; ++k) {
        take(runs.in_whole + k * runs.stride, runs.in_slice + k * runs.length, runs.length);
      }
    }
  }

  // Of [begin, end) of the request's slice, of which no piece is.
  void find_gaps(int64_t begin, int64_t end) {
    for_each_run(begin, end, [&](int64_t in_whole, int64_t in_slice, int64_t length) {
      for (int64_t done = 0; done < length;) {
        const auto [covered, next] = covered_by_other_slices(in_whole + done, in_whole + length);
        if (covered == in_whole + done) add_gap(in_slice + done, in_slice + next - in_whole);
        done = std::max(covered, next) - in_whole;
      }
    });
  }

  // Up to where the pieces have the whole parameter's elements from `position` on; where they have nothing there, up to
  // where that is so. Neither is after `end`.
  std::pair<int64_t, int64_t> covered_by_other_slices(int64_t position, int64_t end) const {
    int64_t covered = position, next = end;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const int64_t element = std::max(pieces_[i].begin, layouts_[i].elements_before(position));
      if (element >= pieces_[i].end) continue;
      const int64_t found = layouts_[i].to_whole(element);
      if (found > position) {
        next = std::min(next, found);
      } else {
        covered = std::max(covered, position + std::min(layouts_[i].run_length(element), pieces_[i].end - element));
      }
    }
    if (covered > position) next = position;
    return {std::min(covered, end), next};
  }

  void add_gap(int64_t begin, int64_t end) {
    if (!plan_.gaps.empty() && plan_.gaps.back().end == begin) {
      plan_.gaps.back().end = end;
    } else {
      plan_.gaps.push_back({begin, end});
    }
  }

  void copy_from_other_slice(size_t piece, int64_t begin, int64_t end) {
    if (pieces_[piece].slice) {
      for_each_run(begin, end, [&](int64_t in_whole, int64_t in_slice, int64_t length) {
        copy_runs_of_piece(piece, in_whole, in_slice, length);
      });
    } else {
      copy_runs_of_request(piece, begin, end);
    }
  }

  // `length` elements of the whole parameter, which are back to back in the request, from a piece of a slice.
  void copy_runs_of_piece(size_t piece, int64_t in_whole, int64_t in_slice, int64_t length) {
    const auto& layout = layouts_[piece];
    const int64_t begin = std::max(pieces_[piece].begin, layout.elements_before(in_whole));
    const int64_t end = std::min(pieces_[piece].end, layout.elements_before(in_whole + length));
    if (begin >= end) return;
    for (const auto& runs : layout.runs(begin, end)) {
      plan_.copies.push_back({piece, runs.in_slice - pieces_[piece].begin,
                              in_slice + runs.in_whole - in_whole - request_.begin, runs.count, runs.length,
                              runs.length, runs.stride});
    }
  }

  // [begin, end) of the request's slice from a piece of the whole parameter.
  void copy_runs_of_request(size_t piece, int64_t begin, int64_t end) {
    begin = std::max(begin, layout_.elements_before(pieces_[piece].begin));
    end = std::min(end, layout_.elements_before(pieces_[piece].end));
    if (begin >= end) return;
    for (const auto& runs : layout_.runs(begin, end)) {
      plan_.copies.push_back({piece, runs.in_whole - pieces_[piece].begin, runs.in_slice - request_.begin, runs.count,
                              runs.length, runs.stride, runs.length});
    }
  }

  const std::vector<SliceRange>& pieces_;
  const SliceRange& request_;
  const SliceLayout layout_;          // of the request's slice
  const int64_t end_;                 // of the request, inside its slice
  std::vector<SliceLayout> layouts_;  // of the pieces' slices
  ReadPlan plan_;
};

bool are_disjoint(const std::optional<Slice>& a, const std::optional<Slice>& b) {
  return a && b && a->dim == b->dim && (a->start + a->length <= b->start || b->start + b->length <= a->start);
}

}  // namespace

ReadPlan plan_read(c10::IntArrayRef shape, const std::vector<SliceRange>& pieces, const SliceRange& request) {
  return ReadPlanner(shape, pieces, request).run();
}

Range needed_part(c10::IntArrayRef shape, const SliceRange& piece, const SliceRange& request) {
  if (request.begin >= request.end || are_disjoint(piece.slice, request.slice)) return {piece.begin, piece.begin};
  Range needed{request.begin, request.end};
  if (piece.slice != request.slice) {
    const SliceLayout of_request(shape, request.slice), of_piece(shape, piece.slice);
    needed.begin = of_piece.elements_before(of_request.to_whole(request.begin));
    needed.end = of_piece.elements_before(of_request.to_whole(request.end - 1) + 1);
  }
  const int64_t begin = std::clamp(needed.begin, piece.begin, piece.end);
  return {begin, std::clamp(needed.end, begin, piece.end)};
}

}  // namespace dslaunch::runtime
