#include "grid_rank.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/described_error.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "case_store.hpp"
#include "config/load.hpp"
#include "config/report.hpp"
#include "runtime/engine/run/trainer.hpp"
#include "runtime/engine/setup/load_model.hpp"

namespace dslaunch::test {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kJoin = 60s;
constexpr auto kIdle = 24h;          // between two cases the driver may compute as long as it likes
constexpr auto kCase = 10min;        // the driver's own deadline for a case is shorter
constexpr auto kOthersFailToo = 2s;  // a failure that every rank meets is met by all within this time
constexpr auto kOneCollective = 120s;

// Empty at the end of the input.
std::string read_line(std::FILE* in) {
  char* text = nullptr;
  size_t capacity = 0;
  const ssize_t length = ::getline(&text, &capacity, in);
  std::string out = length > 0 ? std::string(text, static_cast<size_t>(length)) : std::string();
  std::free(text);
  return out;
}

void write_line(int fd, const Json& value) {
  const std::string line = value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    throw SystemError("write", "a result");
}

// The ranks' messages of a case that shows them go where the pool's standard error goes.
void set_log_level(const Json& grid_case) {
  log::set_level(grid_case.value("shows", false) ? log::Level::kInfo : log::Level::kWarning);
}

runtime::engine::run::TrainRequest request_of(const Json& grid_case, const rendezvous::LaunchEnv& env) {
  const auto steps = grid_case.at("steps").get<int64_t>();
  const std::vector<config::Override> overrides{{"train.steps", std::to_string(steps), "the case"}};
  const auto loaded = config::load_text(
      grid_case.at("config").dump(), "the case's config", config::Format::kHjson, overrides,
      {.world_size = env.world_size, .model = runtime::engine::setup::read_model_defaults(grid_case.at("model"))});
  config::throw_if_bad(loaded);
  for (const auto& note : loaded.notes) log::info("note: {}", note);
  runtime::engine::run::TrainRequest request;
  request.model_path = grid_case.at("model").get<std::string>();
  request.run_dir = grid_case.at("run_dir").get<std::string>();
  request.config = loaded.config;
  request.resolved_config = config::resolved_json(loaded);
  request.resume = grid_case.value("resume", "");
  request.job = grid_case.value("job", "");
  if (grid_case.contains("begin_from")) request.begin_from = grid_case.at("begin_from").get<std::string>();
  request.placement = {env.rank,      env.world_size, env.local_rank,      env.node_rank,
                       env.num_nodes, env.host,       env.local_world_size};
  request.verify = grid_case.value("verify", 0);
  request.eval_only = grid_case.value("eval_only", false);
  request.quiet = !grid_case.value("shows", false);
  request.hang_limit = std::chrono::seconds(6);  // who is alone at a meeting of ranks says so before the pool gives up
  return request;
}

}  // namespace

GridRank::GridRank(rendezvous::LaunchEnv env)
    : env_(std::move(env)), store_(rendezvous::connect_store(env_, Deadline::after(kJoin))) {
  comm::CommunicatorOptions group;
  group.rank = env_.rank;
  group.size = env_.world_size;
  group.timeout = kOneCollective;
  world_ = comm::make_communicator(group, *store_);
}

int GridRank::run(int in_fd, int out_fd) {
  std::FILE* in = env_.rank == 0 ? ::fdopen(in_fd, "r") : nullptr;
  for (;; ++case_number_) {
    const std::string text = share_case(in != nullptr ? read_line(in) : "");
    if (text.empty()) break;
    const auto began = std::chrono::steady_clock::now();
    const Ending own = run_case(text);
    Ending ending;
    const bool ready = agree(own, ending);
    if (in != nullptr) {
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
      write_line(out_fd, {{"code", ending.code},
                          {"message", ending.message},
                          {"seconds", taken.count()},
                          {"pool", ready ? "ready" : "broken"}});
    }
    if (!ready) return 1;
  }
  store_->leave();
  return 0;
}

std::string GridRank::key(const std::string& name) const {
  return fmt::format("grid/{}/{}", case_number_, name);
}

std::string GridRank::share_case(const std::string& line) {
  if (env_.rank != 0) return store_->get(key("case"), Deadline::after(kIdle));
  store_->set(key("case"), line, Deadline::after(kJoin));
  return line;
}

GridRank::Ending GridRank::run_case(const std::string& text) {
  try {
    CaseStore store(*store_, key("run/"));
    const Json grid_case = Json::parse(text);
    set_log_level(grid_case);
    const runtime::device::Device device(at::kCPU);
    auto request = request_of(grid_case, env_);
    request.device = &device;
    runtime::engine::run::train(request,
                                groups_of(static_cast<int>(request.config.pipeline.stages),
                                          static_cast<int>(request.config.tensor_parallel.size)),
                                store);
    return {};
  } catch (const std::exception& error) {
    const DescribedError end = described(error);
    return {to_int(end.code), end.text};
  }
}

comm::Groups GridRank::groups_of(int num_stages, int num_tensor) {
  if (num_stages == 1 && num_tensor == 1) return comm::Groups::of_data_ranks(*world_);
  const auto [found, is_new] = meshes_.try_emplace({num_stages, num_tensor});
  if (is_new) {
    const auto make = [&](const std::string& name, const std::vector<int>& ranks) {
      comm::CommunicatorOptions group;
      group.name = fmt::format("{} stages, {} tensor ranks, {}", num_stages, num_tensor, name);
      group.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), env_.rank) - ranks.begin());
      group.size = static_cast<int>(ranks.size());
      group.timeout = kOneCollective;
      return comm::make_communicator(group, *store_);
    };
    found->second.open(comm::make_mesh(env_.world_size, num_stages, num_tensor), env_.rank, make);
  }
  return found->second.groups();
}

// All ranks tell each other how the case ended. True when all ended alike, so that the next case may follow.
bool GridRank::agree(const Ending& own, Ending& first_failure) {
  store_->set(key(fmt::format("end/{}", env_.rank)), Json{{"code", own.code}, {"message", own.message}}.dump(),
              Deadline::after(kJoin));
  const auto deadline = own.code == 0 ? Deadline::after(kCase) : Deadline::after(kOthersFailToo);
  int num_failed = 0;
  bool is_peer_lost = false;
  for (int rank = 0; rank < env_.world_size; ++rank) {
    try {
      const Json theirs = Json::parse(store_->get(key(fmt::format("end/{}", rank)), deadline));
      const int code = theirs.at("code");
      if (code == 0) continue;
      num_failed += 1;
      is_peer_lost |= code == to_int(ExitCode::kPeerLost);
      // A rank that lost a peer is the echo of another one's failure.
      const bool is_known = first_failure.code != 0 && first_failure.code != to_int(ExitCode::kPeerLost);
      if (!is_known) first_failure = {code, fmt::format("rank {}: {}", rank, theirs.at("message").get<std::string>())};
    } catch (const std::exception& error) {
      if (first_failure.code == 0) first_failure = {to_int(ExitCode::kInternal), ""};
      first_failure.message += fmt::format("; rank {} has not ended: {}", rank, error.what());
      num_failed = -env_.world_size;
    }
  }
  return num_failed == 0 || (num_failed == env_.world_size && !is_peer_lost);
}

}  // namespace dslaunch::test
