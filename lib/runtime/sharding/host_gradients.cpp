// Gradients of offloaded state: each slice is copied to the host as it is delivered, while backward goes on.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "runtime/sharding/gradient_sink.hpp"
#include "runtime/state/offload_scopes.hpp"
#include "runtime/state/pinned_memory.hpp"

namespace dslaunch::runtime {
namespace {

class HostGradients final : public GradientSink {
 public:
  HostGradients(std::unique_ptr<GradientSink> resident, HostGradientOptions options, std::span<SpanState> state)
      : resident_(std::move(resident)), options_(std::move(options)), state_(state), sums_(options_.own_ranges.size()) {
    for (size_t i = 0; i < sums_.size(); ++i) {
      sums_[i].dtype = options_.dtypes[i];
      if (options_.is_offloaded[i] && !options_.store) sums_[i].values = allocate(i, options_.dtypes[i]);
    }
  }

  void prepare(int group, const at::Tensor& room) override {
    if (!options_.is_offloaded[group]) resident_->prepare(group, room);
  }

  void deliver(int group, const at::Tensor& slice, bool is_first, bool is_last) override {
    if (!options_.is_offloaded[group]) return resident_->deliver(group, slice, is_first, is_last);
    DSL_CHECK(!sums_[group].is_being_used, "a gradient whose update has begun is complete");
    is_first ? store(group, slice) : add(group, slice);
    sums_[group].is_delivered = true;
    if (is_last && arrives_by_stream() && options_.begins_early && options_.begins_early()) begin_early(group);
  }

  void finish() override {
    resident_->finish();
    if (options_.store) options_.store->finish();
    if (options_.copies) options_.copies->finish();
    for (auto& [span, arrays] : state_) {
      Sum& sum = sums_[span.flat_group];
      if (!arrays.is_offloaded) continue;
      if (options_.store) {
        arrays.stored_gradient = {area_, sum.dtype, !sum.is_delivered};
      } else {
        arrays.gradient = part_of(span, sum.values);
        if (!sum.is_delivered) arrays.gradient.zero_();
      }
      const size_t index = sum.next_span++;
      arrays.gradient_squares = index < sum.squares_of_spans.size() ? sum.squares_of_spans[index] : at::Tensor();
    }
  }

  void release() override {
    resident_->release();
    for (Sum& sum : sums_) sum = {.values = std::move(sum.values), .kept = std::move(sum.kept)};
    if (options_.are_kept) keep();
    for (size_t i = 0; i < sums_.size(); ++i) {
      sums_[i].dtype = sums_[i].values.defined() ? sums_[i].values.scalar_type() : options_.dtypes[i];
    }
    for (auto& [span, arrays] : state_) {
      arrays.gradient = arrays.gradient_squares = at::Tensor();
      arrays.stored_gradient.reset();
    }
  }

 private:
  struct Sum {          // of a group
    at::Tensor values;  // on the host; undefined for groups that are not offloaded, or in the store
    at::Tensor kept;    // those of the step before
    at::ScalarType dtype = at::kFloat;
    bool is_delivered = false;
    bool is_being_used = false;                // by an early update
    std::vector<at::Tensor> squares_of_spans;  // on the device, of what was delivered so far; empty on CPU ranks
    at::Tensor all_squares;  // also of what is not counted: an early update needs to know all that it reads; undefined:
                             // their sum
    size_t next_span = 0;
  };

  at::Tensor allocate(size_t group, at::ScalarType dtype) const {
    return options_.allocate(options_.own_ranges[group].size(), dtype);
  }

  void keep() {
    area_ = 1 - area_;
    if (options_.store) return;
    for (size_t i = 0; i < sums_.size(); ++i) {
      std::swap(sums_[i].values, sums_[i].kept);
      if (options_.is_offloaded[i] && !sums_[i].values.defined()) sums_[i].values = allocate(i, options_.dtypes[i]);
    }
  }

  void store(int group, const at::Tensor& slice) {
    if (slice.scalar_type() == options_.sum_dtype) hold_sums(group);  // stages 0 and 1: of several calls
    const at::Tensor values = slice.to(sums_[group].dtype);           // on the slice's device
    put(group, values);
    measure(group, values);
  }

  void put(int group, const at::Tensor& values) {
    if (!options_.store) return download(values, sums_[group].values);
    for (const auto& [span, arrays] : state_) {
      if (span.flat_group == group) options_.store->write(*arrays.stored, area_, part_of(span, values));
    }
  }

  // The sum so far, on the device of `like`, in the dtype in which slices are added up.
  at::Tensor fetch(int group, const at::Tensor& like) {
    const Sum& sum = sums_[group];
    if (!options_.store && !options_.copies) {
      return sum.values.to(like.device(), options_.sum_dtype, /*non_blocking=*/true);
    }
    const at::Tensor values = at::empty({like.numel()}, like.options().dtype(sum.dtype));
    if (options_.copies) {
      options_.copies->finish();
      options_.copies->upload(sum.values, values);
      return values.to(options_.sum_dtype);
    }
    for (const auto& [span, arrays] : state_) {
      if (span.flat_group == group) options_.store->read(*arrays.stored, area_, part_of(span, values));
    }
    return values.to(options_.sum_dtype);
  }

  bool arrives_by_stream() const { return !options_.store && !options_.copies; }

  void begin_early(int group) {
    Sum& sum = sums_[group];
    sum.is_being_used = true;
    std::vector<SpanState> spans;
    for (const auto& each : state_) {
      if (each.span.flat_group != group) continue;
      spans.push_back(each);
      spans.back().arrays.gradient = part_of(each.span, sum.values);
    }
    if (!spans.empty()) options_.begin_early(spans, squares_on_host(sum));  // else this rank has its padding alone
  }

  // When the current stream has got here.
  at::Tensor squares_on_host(const Sum& sum) const {
    if (sum.squares_of_spans.empty()) return options_.sum_of_squares(sum.values);  // a CPU rank
    at::Tensor squares = pinned_if_possible({}, at::kDouble);
    const at::Tensor of_all = sum.all_squares.defined() ? sum.all_squares : at::stack(sum.squares_of_spans).sum();
    return squares.copy_(of_all, /*non_blocking=*/true);
  }

  at::Tensor part_of(const StateSpan& span, const at::Tensor& of_group) const {
    return of_group.narrow(0, span.range.begin - options_.own_ranges[span.flat_group].begin, span.numel());
  }

  // The sum so far comes up to the device for the addition: all work stays on the stream, in order, and the addition is
  // the one of gradients that are not offloaded.
  void add(int group, const at::Tensor& slice) {
    Sum& sum = sums_[group];
    const at::Tensor values = fetch(group, slice);
    values.add_(slice);
    hold_sums(group);
    if (!values.is_same(sum.values)) put(group, values);
    measure(group, values);
  }

  // A unit that is called twice in its only micro batch: its sum is not exact in the dtype of one call's gradients.
  void hold_sums(int group) {
    Sum& sum = sums_[group];
    const bool widens = sum.dtype != options_.sum_dtype;
    if (widens && !options_.store) sum.values = allocate(group, options_.sum_dtype);
    sum.dtype = options_.sum_dtype;
  }

  void download(const at::Tensor& values, const at::Tensor& host) {
    if (options_.copies) return options_.copies->download(values, host);
    const OffloadScope scope(kDownloadScope, host.nbytes());
    host.copy_(values, /*non_blocking=*/true);
  }

  void measure(int group, const at::Tensor& values) {
    if (values.is_cpu()) return;  // StepVerdict adds up host memory itself, in the order without offload
    if (options_.counted_ranges) sums_[group].all_squares = options_.sum_of_squares(values);
    auto& squares = sums_[group].squares_of_spans;
    squares.clear();
    for (const auto& [span, arrays] : state_) {
      if (span.flat_group != group) continue;
      at::Tensor sum = at::zeros({}, values.options().dtype(at::kDouble));
      for (const Range& range : counted_ranges(span)) {
        const int64_t offset = range.begin - options_.own_ranges[group].begin;
        sum.add_(options_.sum_of_squares(values.narrow(0, offset, range.size())));
      }
      squares.push_back(sum);
    }
  }

  std::vector<Range> counted_ranges(const StateSpan& span) const {
    return options_.counted_ranges ? options_.counted_ranges(span) : std::vector<Range>{span.range};
  }

  const std::unique_ptr<GradientSink> resident_;
  const HostGradientOptions options_;
  const std::span<SpanState> state_;
  std::vector<Sum> sums_;  // by group
  int area_ = 0;           // of the store: where this step's gradients are
};

}  // namespace

std::unique_ptr<GradientSink> make_host_gradients(std::unique_ptr<GradientSink> resident, HostGradientOptions options,
                                                  std::span<SpanState> state) {
  return std::make_unique<HostGradients>(std::move(resident), std::move(options), state);
}

}  // namespace dslaunch::runtime
