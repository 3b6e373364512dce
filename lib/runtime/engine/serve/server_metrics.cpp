#include "runtime/engine/serve/server_metrics.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "runtime/telemetry/host_memory.hpp"

namespace dslaunch::runtime::engine::serve {
namespace {

void append_family(std::string& out, const char* name, const char* help, const char* type) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

template <class Number>
void append_number(std::string& out, const char* name, const char* help, const char* type, Number value) {
  append_family(out, name, help, type);
  out += fmt::format("{} {}\n", name, value);
}

// A label's value.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? "\\n" : c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return '"' + out + '"';
}

}  // namespace

void ServerMetrics::Histogram::add(Seconds value) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), value.count());
  counts[static_cast<size_t>(bound - kBounds.begin())] += 1;
  sum += value.count();
}

void ServerMetrics::append(std::string& out, const char* name, const char* help, const Histogram& histogram) {
  append_family(out, name, help, "histogram");
  uint64_t count = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    count += histogram.counts[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], count);
  }
  count += histogram.counts.back();
  out += fmt::format("{}_bucket{{le=\"+Inf\"}} {}\n{}_sum {}\n{}_count {}\n", name, count, name, histogram.sum, name,
                     count);
}

void ServerMetrics::count_request(int status) {
  const std::lock_guard lock(mutex_);
  by_status_[status] += 1;
}

void ServerMetrics::count_tokens(int64_t prompt_tokens, int64_t new_tokens) {
  const std::lock_guard lock(mutex_);
  prompt_tokens_ += static_cast<uint64_t>(prompt_tokens);
  new_tokens_ += static_cast<uint64_t>(new_tokens);
}

void ServerMetrics::note_first_token(Seconds since_arrival) {
  const std::lock_guard lock(mutex_);
  first_tokens_.add(since_arrival);
}

void ServerMetrics::note_step(Seconds taken) {
  const std::lock_guard lock(mutex_);
  steps_.add(taken);
}

void ServerMetrics::note_request(Seconds since_arrival) {
  const std::lock_guard lock(mutex_);
  requests_.add(since_arrival);
}

void ServerMetrics::set_running(size_t num_requests, size_t num_texts) {
  const std::lock_guard lock(mutex_);
  num_requests_ = num_requests;
  num_texts_ = num_texts;
}

std::string ServerMetrics::text(const std::string& model, size_t num_waiting, const http::Counts& connections) const {
  const std::lock_guard lock(mutex_);
  std::string out;
  append_family(out, "dslaunch_model_info", "the model that is served", "gauge");
  out += fmt::format("dslaunch_model_info{{model={}}} 1\n", quoted(model));
  append_family(out, "dslaunch_completion_requests_total", "answered requests by HTTP status", "counter");
  for (const auto& [status, count] : by_status_) {
    out += fmt::format("dslaunch_completion_requests_total{{status=\"{}\"}} {}\n", status, count);
  }
  append_number(out, "dslaunch_requests_running", "requests that are being answered", "gauge", num_requests_);
  append_number(out, "dslaunch_requests_waiting", "requests in the queue", "gauge", num_waiting);
  append_number(out, "dslaunch_texts_running", "texts that are being written", "gauge", num_texts_);
  append_number(out, "dslaunch_prompt_tokens_total", "tokens of prompts", "counter", prompt_tokens_);
  append_number(out, "dslaunch_generation_tokens_total", "tokens that were added", "counter", new_tokens_);
  append(out, "dslaunch_time_to_first_token_seconds", "from a request's arrival to its first token", first_tokens_);
  append(out, "dslaunch_decode_step_seconds", "a pass that adds a token to each text", steps_);
  append(out, "dslaunch_request_seconds", "from a request's arrival to its answer", requests_);
  append_number(out, "dslaunch_http_connections", "open connections", "gauge", connections.open_connections);
  append_number(out, "dslaunch_http_connections_total", "connections so far", "counter", connections.connections);
  append_number(out, "dslaunch_http_connections_refused_total", "connections beyond the limit", "counter",
                connections.refused_connections);
  if (const auto memory = read_host_memory()) {
    append_number(out, "process_resident_memory_bytes", "memory of the process on the host", "gauge", memory->resident);
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::serve
