#include "runtime/offload/host_updates.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "runtime/offload/copy_event.hpp"
#include "runtime/offload/host_memory.hpp"
#include "runtime/state/offload_scopes.hpp"
#include "runtime/state/pinned_memory.hpp"
#include "runtime/state/thread_team.hpp"

namespace dslaunch::runtime::offload {
namespace {

using namespace std::chrono_literals;

constexpr auto kDevicePollInterval = 50us;
constexpr auto kPeerCheckInterval = 10ms;
constexpr const char* kIncomplete =
    "a step has ended in its backward, after updates of it had begun: its state is "
    "that of neither step";

StateSpan part_of(const StateSpan& span, int64_t begin, int64_t count) {
  return {span.flat_group, span.optimizer_group, {span.range.begin + begin, span.range.begin + begin + count}};
}

// A copy: the next step writes these scalars while the update reads them.
at::Tensor to_host(const at::Tensor& scalar) {
  if (!scalar.defined()) return scalar;
  if (scalar.is_cpu()) return scalar.clone();
  at::Tensor host = pinned_if_possible(scalar.sizes(), scalar.scalar_type());
  return host.copy_(scalar, /*non_blocking=*/true);
}

// As StepVerdict sees it: a sum of squares in fp32.
bool is_finite(const at::Tensor& scalar) {
  return std::isfinite(scalar.to(at::kFloat).item<float>());
}

bool ends_group(const std::vector<SpanState>& state, size_t i) {
  return i + 1 == state.size() || state[i + 1].span.flat_group != state[i].span.flat_group;
}

std::vector<at::Tensor> blocks_of(const HostUpdateOptions& options) {
  if (options.parameters && !options.parameters->blocks().empty()) return options.parameters->blocks();
  return UploadRing::allocate_blocks(options.device, options.chunk_numel);
}

bool writes_nothing(const UpdateScalars& scalars) {
  return scalars.skip.defined() && *scalars.skip.const_data_ptr<float>() != 0.0F;
}

}  // namespace

int choose_update_threads(int own_cores, int host_cores, int ranks_of_host, double share) {
  const int cores = std::min(own_cores, std::max(1, host_cores / std::max(1, ranks_of_host)));
  return std::max(1, static_cast<int>(share * cores));
}

HostUpdates::HostUpdates(HostUpdateOptions options, int num_groups, const StepStreams& streams)
    : options_(std::move(options)),
      streams_(streams),
      ring_(options_.device, blocks_of(options_)),
      stored_(options_.file ? std::make_optional<UpdateRing>(options_.file, options_.ring) : std::nullopt),
      is_pending_(static_cast<size_t>(num_groups)),
      published_(static_cast<size_t>(num_groups)),
      thread_([this] { run_thread(); }) {}

HostUpdates::~HostUpdates() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostUpdates::expect_early(const at::Tensor& factor, const at::Tensor& loss, Update update) {
  DSL_CHECK(may_be_early(), "updates of what is in files, or delayed, are never early");
  Early early;
  early.any.scalars = {factor, at::zeros({}, at::kFloat), {}};
  early.any.update = std::move(update);
  early.any.is_early = true;
  early.any.finite = {to_host(loss)};
  early.has_landed.resize(is_pending_.size());
  early.has_begun.resize(is_pending_.size());
  const std::lock_guard lock(mutex_);
  DSL_CHECK(!early_, kIncomplete);
  early_ = std::move(early);
}

bool HostUpdates::takes_early_groups() const {
  const std::lock_guard lock(mutex_);
  return early_.has_value();
}

void HostUpdates::begin_early(std::span<const SpanState> group, const at::Tensor& squares) {
  auto arrived = record_current(options_.device);
  const auto index = static_cast<size_t>(group.front().span.flat_group);
  {
    const std::lock_guard lock(mutex_);
    DSL_CHECK(early_ && !early_->has_landed[index], "a group's gradients are complete once in a step");
    early_->has_landed[index] = true;
    set_pending(group);
    Job& job = early_->landed.emplace_back(early_->any);
    job.state.assign(group.begin(), group.end());
    job.arrived = std::move(arrived);
    job.finite.push_back(squares);
  }
  changed_.notify_all();
}

// By group: whether its update has begun. The others are left to the order of use.
std::vector<bool> HostUpdates::end_early() {
  const std::lock_guard lock(mutex_);
  std::vector<bool> out = early_ ? early_->has_begun : std::vector<bool>(is_pending_.size());
  early_.reset();
  return out;
}

void HostUpdates::begin(std::span<const SpanState> state, const UpdateScalars& scalars, Update update) {
  wait_for(std::nullopt);
  const auto has_begun = end_early();
  Job job;
  for (const auto& each : state) {
    if (each.arrays.is_offloaded && !has_begun[static_cast<size_t>(each.span.flat_group)]) job.state.push_back(each);
  }
  job.scalars = {to_host(scalars.gradient_factor), to_host(scalars.skip), to_host(scalars.applied_steps)};
  job.update = std::move(update);
  job.is_delayed = options_.delayed_after && num_begun_ >= *options_.delayed_after;
  num_begun_ += 1;
  start(std::move(job));
}

// Groups are pending that this job publishes: its own, or with a delay those of the job before.
void HostUpdates::start(Job job) {
  job.arrived = record_current(options_.device);
  {
    const std::lock_guard lock(mutex_);
    if (is_staged_) set_pending(staging_[filled_].state);
    if (!job.is_delayed) set_pending(job.state);
    job_ = std::move(job);
  }
  changed_.notify_all();
}

void HostUpdates::set_pending(std::span<const SpanState> state) {
  for (const auto& each : state) {
    is_pending_[static_cast<size_t>(each.span.flat_group)] = true;
    if (each.arrays.stored_parameter) options_.parameters->begin_update(each.span.flat_group);
  }
}

StreamMark HostUpdates::wait(int group) {
  {
    const std::lock_guard lock(mutex_);
    DSL_CHECK(!early_ || !early_->has_landed[static_cast<size_t>(group)],
              "parameters are not read any more in the step that updates them");
  }
  wait_for(group);
  const std::lock_guard lock(mutex_);
  return published_[static_cast<size_t>(group)];
}

void HostUpdates::finish() {
  wait_for(std::nullopt);
  DSL_CHECK(!takes_early_groups(), kIncomplete);
  if (is_staged_) {
    start({});
    wait_for(std::nullopt);
  }
  for (const auto& mark : published_) streams_.wait(mark);
}

void HostUpdates::wait_for(std::optional<int> group) {
  std::unique_lock lock(mutex_);
  const auto is_reached = [&] { return failure_ || !job_ || (group && !is_pending_[static_cast<size_t>(*group)]); };
  while (!changed_.wait_for(lock, kPeerCheckInterval, is_reached)) {
    if (options_.check_peers) options_.check_peers();
  }
  if (failure_) std::rethrow_exception(failure_);
}

void HostUpdates::run_thread() {
  ThreadTeam team(options_.num_threads);
  const ThreadTeam::Scope loops_use_it(team);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_stopping_ || (has_work() && !failure_); });
    if (is_stopping_) return;
    const Job job = next_job();
    lock.unlock();
    std::exception_ptr failure;
    try {
      run(job);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    if (!failure && !job.is_early) job_.reset();
    changed_.notify_all();
  }
}

HostUpdates::Job HostUpdates::next_job() {
  if (job_) return *job_;
  Job job = std::move(early_->landed.front());
  early_->landed.pop_front();
  early_->has_begun[static_cast<size_t>(job.state.front().span.flat_group)] = true;
  return job;
}

void HostUpdates::run(const Job& job) {
  const at::NoGradGuard no_grad;
  if (!wait_for_arrival(job)) return;
  if (is_staged_) publish_staged();
  if (job.update) update(job);
}

// Polls: a device that waits for a lost rank never gets there. False: this object is being destroyed.
bool HostUpdates::wait_for_arrival(const Job& job) {
  std::unique_lock lock(mutex_);
  while (job.arrived && !job.arrived->query()) {
    if (changed_.wait_for(lock, kDevicePollInterval, [&] { return is_stopping_; })) return false;
  }
  return !is_stopping_;
}

// An early update that finds its step to be skipped comes before the verdict, which then says the same to the others.
bool HostUpdates::writes(const Job& job) {
  if (!job.is_early) {
    const bool is_skipped = writes_nothing(job.scalars);
    is_given_up_ |= is_skipped;
    return !is_skipped;
  }
  is_given_up_ |= !std::all_of(job.finite.begin(), job.finite.end(), is_finite);
  return !is_given_up_;
}

// A step that writes nothing leaves the files alone, too.
void HostUpdates::update(const Job& job) {
  const bool writes = this->writes(job);
  if (writes && stored_) begin_stored(job);
  const Staged* staged = job.is_delayed && writes ? &next_staging(job) : nullptr;
  for (size_t i = 0; i < job.state.size(); ++i) {
    const bool is_in_memory = staged != nullptr && !staged->parameters.empty();
    if (writes) update_span(job.state[i], is_in_memory ? staged->parameters[i] : at::Tensor(), job);
    if (is_stopping()) return;
    if (!job.is_delayed && ends_group(job.state, i)) publish(job.state[i].span.flat_group);
  }
  if (writes && stored_) stored_->finish();
  ring_.finish_writes();
  is_staged_ = staged != nullptr;
}

void HostUpdates::begin_stored(const Job& job) {
  std::vector<SubGroup> order;
  for (const auto& [span, arrays] : job.state) {
    if (!arrays.stored) continue;
    for (SubGroup& each : options_.file->sub_groups(arrays.stored->number())) {
      each.gradient = arrays.stored_gradient;
      order.push_back(each);
    }
  }
  stored_->begin(std::move(order));
}

void HostUpdates::update_stored_span(const SpanState& state, const Job& job) {
  for (const SubGroup& each : options_.file->sub_groups(state.arrays.stored->number())) {
    if (is_stopping()) return;
    StateArrays arrays = stored_->next();
    const StateArrays elsewhere = narrow(state.arrays, each.begin, each.count);
    if (!arrays.gradient.defined()) arrays.gradient = elsewhere.gradient;
    arrays.low_precision = elsewhere.low_precision;
    arrays.stored_parameter = elsewhere.stored_parameter;
    const Target target =
        job.is_delayed ? target_in_state_file(each, arrays.parameter_dtype()) : target_at_rest(arrays);
    update_chunk({part_of(state.span, each.begin, each.count), arrays}, target, job);
    stored_->store();
  }
}

void HostUpdates::update_span(const SpanState& state, const at::Tensor& staged, const Job& job) {
  if (state.arrays.stored) return update_stored_span(state, job);
  for (int64_t begin = 0; begin < state.span.numel() && !is_stopping(); begin += options_.chunk_numel) {
    const int64_t count = std::min(options_.chunk_numel, state.span.numel() - begin);
    const StateArrays arrays = narrow(state.arrays, begin, count);
    const Target target = staged.defined() ? Target{staged.narrow(0, begin, count), {}} : target_at_rest(arrays);
    update_chunk({part_of(state.span, begin, count), arrays}, target, job);
  }
}

// An fp32 parameter is a copy of its master.
void HostUpdates::update_chunk(SpanState chunk, const Target& target, const Job& job) {
  auto& [span, arrays] = chunk;
  const auto dtype = arrays.parameter_dtype();
  const at::Tensor written = target.send ? ring_.next(arrays.master.numel(), dtype) : target.memory;
  const bool is_rounded = dtype != at::kFloat;
  arrays.low_precision = is_rounded ? written : at::Tensor();
  arrays.stored_parameter.reset();
  {
    const OffloadScope scope(kHostUpdateScope, arrays.master.nbytes());
    job.update({&chunk, 1}, job.scalars);
    if (!is_rounded) written.copy_(arrays.master);
  }
  if (target.send) target.send();
}

// Parameters that rest on the host are written where they are, others go through a block of the ring.
HostUpdates::Target HostUpdates::target_at_rest(const StateArrays& arrays) {
  if (const auto& stored = arrays.stored_parameter) {
    return {{}, [this, parameter = *stored] {
              const auto ticket = options_.parameters->begin_write(parameter, ring_.filled_pages());
              ring_.is_written_by([file = options_.parameters, ticket] { file->wait(ticket); });
            }};
  }
  if (arrays.low_precision.is_cpu()) return {arrays.low_precision, {}};
  return {{}, [this, parameter = arrays.low_precision] { ring_.copy_to(parameter); }};
}

HostUpdates::Target HostUpdates::target_in_state_file(const SubGroup& sub_group, at::ScalarType dtype) {
  return {{}, [this, sub_group, dtype] {
            const auto ticket = options_.file->begin_write_area(sub_group.span, StateFile::kStagedParameters,
                                                                sub_group.begin, dtype, ring_.filled_pages());
            ring_.is_written_by([file = options_.file, ticket] { file->wait(ticket); });
          }};
}

// Memory is allocated at the first delayed update.
HostUpdates::Staged& HostUpdates::next_staging(const Job& job) {
  filled_ = (filled_ + 1) % staging_.size();
  Staged& staged = staging_[filled_];
  if (staged.copied) staged.copied->synchronize();
  staged.state = job.state;
  if (options_.file) return staged;
  for (size_t i = staged.parameters.size(); i < job.state.size(); ++i) {
    const auto dtype = job.state[i].arrays.parameter_dtype();
    staged.parameters.push_back(page_locked_if_possible(job.state[i].span.numel(), dtype, options_.device));
  }
  return staged;
}

// The device has done everything that reads the parameters: wait_for_arrival() was before.
void HostUpdates::publish_staged() {
  Staged& staged = staging_[filled_];
  for (size_t i = 0; i < staged.state.size(); ++i) {
    const StateArrays& arrays = staged.state[i].arrays;
    staged.parameters.empty() ? publish_from_state_file(arrays) : publish_from_memory(staged.parameters[i], arrays);
    if (ends_group(staged.state, i)) publish(staged.state[i].span.flat_group);
  }
  staged.copied = ring_.end();
  is_staged_ = false;
}

void HostUpdates::publish_from_memory(const at::Tensor& staged, const StateArrays& arrays) {
  if (arrays.stored_parameter) return arrays.stored_parameter->write(0, staged);
  ring_.copy(staged, arrays.low_precision);
}

void HostUpdates::publish_from_state_file(const StateArrays& arrays) {
  for (const SubGroup& each : options_.file->sub_groups(arrays.stored->number())) {
    const StateArrays part = narrow(arrays, each.begin, each.count);
    ring_.next(each.count, part.parameter_dtype());
    options_.file->wait(options_.file->begin_read_area(each.span, StateFile::kStagedParameters, each.begin,
                                                       part.parameter_dtype(), ring_.filled_pages()));
    const Target target = target_at_rest(part);
    target.send ? target.send() : ring_.copy_to(target.memory);
  }
}

void HostUpdates::publish(int group) {
  ring_.finish_writes();
  auto end = ring_.end();
  if (options_.parameters) options_.parameters->end_update(group);
  const std::lock_guard lock(mutex_);
  is_pending_[static_cast<size_t>(group)] = false;
  published_[static_cast<size_t>(group)] = streams_.mark_of(std::move(end));
  changed_.notify_all();
}

bool HostUpdates::is_stopping() {
  const std::lock_guard lock(mutex_);
  return is_stopping_;
}

}  // namespace dslaunch::runtime::offload
