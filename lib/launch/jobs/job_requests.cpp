#include "launch/jobs/job_requests.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/plan/cpu_list.hpp"

namespace dslaunch::launch {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const Json& json) {
  return dump_json(json) + "\n";
}

Json to_json(const StatusRequest&) {
  return {{"ask", "status"}};
}
Json to_json(const AttachRequest& ask) {
  return {{"ask", "attach"}, {"from", ask.from}};
}
Json to_json(const StopRequest& ask) {
  return {{"ask", "stop"}, {"now", ask.now}, {"grace_ms", ask.grace ? Json(ask.grace->count()) : Json(nullptr)}};
}

Json to_json(const StacksRequest& ask) {
  return {{"ask", "stacks"}, {"ranks", cpu_list_text(ask.ranks)}};
}

Json to_json(const RankStatusRequest&) {
  return {{"ask", "ranks"}};
}

Json to_json(const RankStatusAnswer& answer) {
  return {{"ranks", Json::parse(answer.document)}};
}
Json to_json(const StacksAnswer& answer) {
  return {{"stacks", Json::parse(answer.document)}};
}
Json to_json(const StatusAnswer& answer) {
  return {{"status", Json::parse(answer.document)}};
}
Json to_json(const ConsolePiece& piece) {
  return {{"console", piece.bytes.size()}, {"at", piece.at}};
}
Json to_json(const Accepted&) {
  return {{"accepted", true}};
}
Json to_json(const Refused& refused) {
  return {{"refused", refused.why}};
}
Json to_json(const EndAnswer& answer) {
  return {{"end",
           {{"exit_code", answer.end.exit_code}, {"when", answer.end.when}, {"first_cause", answer.end.first_cause}}}};
}

StopRequest read_stop(const Json& json) {
  StopRequest stop{.now = json.at("now").get<bool>(), .grace = {}};
  if (const Json& grace = json.at("grace_ms"); !grace.is_null()) {
    stop.grace = std::chrono::milliseconds(std::clamp<int64_t>(grace.get<int64_t>(), 0, int64_t{1} << 40));
  }
  return stop;
}

StacksRequest read_stacks(const Json& json) {
  auto ranks = read_cpu_list(json.at("ranks").get<std::string>());
  if (!ranks.ok()) throw Error(ExitCode::kInternal, ranks.error().message);
  return {*std::move(ranks)};
}

JobRequest read_request(const Json& json) {
  const auto ask = json.at("ask").get<std::string>();
  if (ask == "status") return StatusRequest{};
  if (ask == "attach") return AttachRequest{json.at("from").get<uint64_t>()};
  if (ask == "stop") return read_stop(json);
  if (ask == "stacks") return read_stacks(json);
  if (ask == "ranks") return RankStatusRequest{};
  throw Error(ExitCode::kInternal, "unknown request");
}

JobAnswer read_answer(const Json& json) {
  if (json.contains("status")) return StatusAnswer{json.at("status").dump()};
  if (json.contains("stacks")) return StacksAnswer{json.at("stacks").dump()};
  if (json.contains("ranks")) return RankStatusAnswer{json.at("ranks").dump()};
  if (json.contains("console")) return ConsolePiece{json.at("at").get<uint64_t>(), {}};
  if (json.contains("accepted")) return Accepted{};
  if (json.contains("refused")) return Refused{json.at("refused").get<std::string>()};
  const Json& end = json.at("end");
  return EndAnswer{
      {end.at("exit_code").get<int>(), end.at("when").get<int64_t>(), end.at("first_cause").get<std::string>()}};
}

}  // namespace

std::string encode_request(const JobRequest& request) {
  return std::visit([](const auto& ask) { return line_of(to_json(ask)); }, request);
}

std::optional<JobRequest> decode_request(std::string_view line) {
  try {
    return read_request(Json::parse(line));
  } catch (const Json::exception&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string encode_answer(const JobAnswer& answer) {
  std::string text = std::visit([](const auto& part) { return line_of(to_json(part)); }, answer);
  if (const auto* piece = std::get_if<ConsolePiece>(&answer)) text += piece->bytes;
  return text;
}

std::optional<JobAnswer> AnswerReader::next() {
  size_t end = buffer_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  try {
    Json json = Json::parse(std::string_view(buffer_).substr(0, end));
    JobAnswer answer = read_answer(json);
    size_t size = json.contains("console") ? json.at("console").get<size_t>() : 0;
    if (buffer_.size() - end - 1 < size) return std::nullopt;
    if (auto* piece = std::get_if<ConsolePiece>(&answer)) piece->bytes = buffer_.substr(end + 1, size);
    buffer_.erase(0, end + 1 + size);
    return answer;
  } catch (const Json::exception& error) {
    throw Error(ExitCode::kInternal,
                fmt::format("the job's supervisor sent '{}', which is not an answer of this version "
                            "of dslaunch ({})",
                            buffer_.substr(0, std::min<size_t>(end, 80)), error.what()));
  }
}

}  // namespace dslaunch::launch
