// An HTTP exchange without a connection, which keeps what it is answered with.
#pragma once
#include <atomic>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/exchange.hpp"

namespace dslaunch::test {

class RecordingExchange final : public http::Exchange {
 public:
  void reply(http::Reply reply) override { answer = std::move(reply); }
  void begin_stream(const std::string& /*content_type*/) override { answer.emplace(); }
  void write(std::string part) override { answer->body += part; }
  void end_stream() override { has_ended = true; }
  bool is_gone() const override { return gone; }

  nlohmann::json document() const { return nlohmann::json::parse(answer->body); }
  // The events of a stream, without the last.
  std::vector<nlohmann::json> events() const {
    std::vector<nlohmann::json> out;
    std::string_view rest = answer->body;
    while (!rest.empty()) {
      const std::string_view event = rest.substr(0, rest.find("\n\n"));
      REQUIRE(event.starts_with("data: "));
      if (event != "data: [DONE]") out.push_back(nlohmann::json::parse(event.substr(6)));
      rest.remove_prefix(event.size() + 2);
    }
    CHECK(answer->body.ends_with("data: [DONE]\n\n"));
    CHECK(has_ended);
    return out;
  }

  std::optional<http::Reply> answer;
  bool has_ended = false;
  std::atomic<bool> gone{false};
};

}  // namespace dslaunch::test
