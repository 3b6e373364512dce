// What a server has done so far, in the text format of Prometheus. Any thread.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "http/server.hpp"

namespace dslaunch::runtime::engine::serve {

class ServerMetrics {
 public:
  using Seconds = std::chrono::duration<double>;

  void count_request(int status);
  void count_tokens(int64_t prompt_tokens, int64_t new_tokens);
  void note_first_token(Seconds since_arrival);
  void note_step(Seconds taken);
  void note_request(Seconds since_arrival);
  void set_running(size_t num_requests, size_t num_texts);

  std::string text(const std::string& model, size_t num_waiting, const http::Counts& connections) const;

 private:
  static constexpr std::array<double, 14> kBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                  0.25,  0.5,    1,     2.5,  5,     10,   60};
  struct Histogram {
    std::array<uint64_t, kBounds.size() + 1> counts{};
    double sum = 0;
    void add(Seconds value);
  };
  static void append(std::string& out, const char* name, const char* help, const Histogram& histogram);

  mutable std::mutex mutex_;  // of all that follow
  std::map<int, uint64_t> by_status_;
  uint64_t prompt_tokens_ = 0, new_tokens_ = 0;
  size_t num_requests_ = 0, num_texts_ = 0;
  Histogram first_tokens_, steps_, requests_;
};

}  // namespace dslaunch::runtime::engine::serve
