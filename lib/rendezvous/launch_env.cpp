#include "rendezvous/launch_env.hpp"

#include <cstdlib>
#include <limits>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_name.hpp"
#include "base/parse_int.hpp"
#include "base/split.hpp"
#include "ports/process_info.hpp"
#include "rendezvous/stream_socket.hpp"

namespace dslaunch::rendezvous {

namespace {

[[noreturn]] void contradiction(const std::string& message) {
  throw UserError(ExitCode::kContradiction, message);
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return std::nullopt;
  if (!*value) contradiction(fmt::format("{} is set but empty; unset it or give it a value", name));
  return value;
}

std::optional<int64_t> number(const char* name, int64_t lowest, int64_t highest) {
  auto text = variable(name);
  if (!text) return std::nullopt;
  const auto value = parse_int(*text, lowest, highest);
  if (!value) {
    contradiction(
        fmt::format("{}='{}' in the environment is not a whole number from {} to {}", name, *text, lowest, highest));
  }
  return value;
}

constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxRestarts = std::numeric_limits<int>::max();

// Format "a*4,b*4": the environment stays short for many ranks on few hosts.
std::string pack_hosts(const std::vector<std::string>& hosts) {
  std::string out;
  for (size_t i = 0; i < hosts.size();) {
    size_t end = i;
    while (end < hosts.size() && hosts[end] == hosts[i]) ++end;
    if (!out.empty()) out += ',';
    out += end - i > 1 ? fmt::format("{}*{}", hosts[i], end - i) : hosts[i];
    i = end;
  }
  return out;
}

std::vector<std::string> unpack_hosts(const std::string& text, int world_size) {
  std::vector<std::string> out;
  for (auto& item : split(text, ',')) {
    int64_t times = 1;
    if (size_t star = item.rfind('*'); star != std::string::npos) {
      times = parse_int<int64_t>(std::string_view(item).substr(star + 1), 1, kMaxRanks).value_or(-1);
      item.resize(star);
    }
    if (item.empty() || times < 1 || out.size() + static_cast<size_t>(times) > static_cast<size_t>(world_size)) {
      contradiction(fmt::format("DSLAUNCH_RANK_HOSTS='{}' does not list {} hosts", text, world_size));
    }
    out.insert(out.end(), static_cast<size_t>(times), item);
  }
  if (out.size() != static_cast<size_t>(world_size)) {
    contradiction(fmt::format("DSLAUNCH_RANK_HOSTS names {} ranks but WORLD_SIZE is {}", out.size(), world_size));
  }
  return out;
}

std::optional<int64_t> first_number(std::initializer_list<const char*> names, int64_t lowest, int64_t highest) {
  for (const char* name : names) {
    if (auto value = number(name, lowest, highest)) return value;
  }
  return std::nullopt;
}

// The values that the environment gives.
struct GivenRanks {
  std::optional<int64_t> rank, world, local_rank, local_world;
};

// Part of mpirun's variables, as in a container that was given some of them, must not make every process a world of
// one.
void refuse_size_without_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const auto size = first_number({name}, 1, kMaxRanks);
    if (size.value_or(1) == 1) continue;
    contradiction(
        fmt::format("{}={} but neither OMPI_COMM_WORLD_RANK, PMI_RANK nor PMIX_RANK is set: pass all variables "
                    "of mpirun on, or unset {}",
                    name, *size, name));
  }
}

// If mpirun started the ranks, Open MPI, Intel MPI, MPICH and PALS number them in their own variables. A wrapper that
// sets RANK takes precedence, so these variables fill in only where RANK is not set.
void fill_in_from_mpi(GivenRanks& given) {
  auto mpi_rank = first_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}, 0, kMaxRanks - 1);
  if (given.rank) return;
  if (!mpi_rank) return refuse_size_without_rank();
  given.rank = mpi_rank;
  if (!given.world) given.world = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1, kMaxRanks);
  if (!given.local_rank) {
    given.local_rank =
        first_number({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PALS_LOCAL_RANKID"}, 0, kMaxRanks - 1);
  }
  if (!given.local_world) {
    given.local_world =
        first_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "LOCAL_SIZE"}, 1, kMaxRanks);
  }
}

[[noreturn]] void refuse_without(const char* missing) {
  contradiction(
      fmt::format("the environment defines ranks but {} is not set; set RANK and WORLD_SIZE "
                  "together (and LOCAL_RANK when there are several hosts), or neither",
                  missing));
}

void set_rank(LaunchEnv& env, int64_t rank, int64_t world) {
  if (rank >= world) contradiction(fmt::format("RANK={} does not fit WORLD_SIZE={}: ranks count from 0", rank, world));
  env.rank = static_cast<int>(rank);
  env.world_size = static_cast<int>(world);
}

// Call after set_rank.
void set_local_rank(LaunchEnv& env, int64_t local_rank, int64_t local_world) {
  if (local_rank >= local_world) {
    contradiction(fmt::format("LOCAL_RANK={} does not fit LOCAL_WORLD_SIZE={}", local_rank, local_world));
  }
  if (local_world > env.world_size) {
    contradiction(fmt::format("LOCAL_WORLD_SIZE={} is larger than WORLD_SIZE={}", local_world, env.world_size));
  }
  if (local_rank > env.rank) contradiction(fmt::format("LOCAL_RANK={} is larger than RANK={}", local_rank, env.rank));
  env.local_rank = static_cast<int>(local_rank);
  env.local_world_size = static_cast<int>(local_world);
}

void read_ranks(LaunchEnv& env) {
  GivenRanks given{number("RANK", 0, kMaxRanks - 1), number("WORLD_SIZE", 1, kMaxRanks),
                   number("LOCAL_RANK", 0, kMaxRanks - 1), number("LOCAL_WORLD_SIZE", 1, kMaxRanks)};
  fill_in_from_mpi(given);
  auto& [rank, world, local_rank, local_world] = given;
  if (!rank && !world && !local_rank && !local_world) return;
  if (!rank) refuse_without("RANK");
  if (!world) refuse_without("WORLD_SIZE");
  set_rank(env, *rank, *world);

  const bool is_on_one_host = *world == 1 || is_loopback_address(env.master_addr);
  // A start by hand on one host often sets RANK and WORLD_SIZE only.
  if (!local_rank && !local_world && is_on_one_host) local_rank = rank;
  if (!local_rank) refuse_without("LOCAL_RANK");
  if (!local_world && !is_on_one_host) refuse_without("LOCAL_WORLD_SIZE");
  set_local_rank(env, *local_rank, local_world.value_or(*world));
}

void read_nodes(LaunchEnv& env) {
  auto node = number("NODE_RANK", 0, kMaxRanks - 1);
  auto group = number("GROUP_RANK", 0, kMaxRanks - 1);
  if (node && group && *node != *group) {
    contradiction(fmt::format("NODE_RANK={} and GROUP_RANK={} name different nodes", *node, *group));
  }
  auto nodes = number("GROUP_WORLD_SIZE", 1, kMaxRanks);
  env.num_nodes = static_cast<int>(nodes.value_or((env.world_size + env.local_world_size - 1) / env.local_world_size));
  env.node_rank = static_cast<int>(node ? *node : group.value_or(env.rank / env.local_world_size));
  if (env.node_rank >= env.num_nodes) {
    contradiction(fmt::format("{}={} does not fit {} nodes (GROUP_WORLD_SIZE, or WORLD_SIZE over LOCAL_WORLD_SIZE)",
                              node ? "NODE_RANK" : "GROUP_RANK", env.node_rank, env.num_nodes));
  }
}

void read_address(LaunchEnv& env, const std::optional<std::string>& address) {
  if (env.world_size > 1 && !address) {
    contradiction(
        fmt::format("WORLD_SIZE={} but MASTER_ADDR is not set: set it to the host of rank 0 (127.0.0.1 when "
                    "all ranks run here)",
                    env.world_size));
  }
  auto port = number("MASTER_PORT", 1, 65535);
  if (env.world_size > 1) env.master_port = static_cast<uint16_t>(port.value_or(kDefaultMasterPort));
  if (env.agent_store) {
    if (!port) contradiction("DSLAUNCH_AGENT_STORE is set but MASTER_PORT is not");
    env.master_port = static_cast<uint16_t>(*port);
  }
}

// A torchrun inside `dslaunch exec` names its own run: the ranks and store in our variables do not apply to this rank.
bool is_nested(const LaunchEnv& env) {
  auto run = variable("TORCHELASTIC_RUN_ID");
  return !env.job_id.empty() && run && *run != env.job_id;
}

}  // namespace

std::vector<uint8_t> parse_token(const std::string& text) {
  auto token = from_hex(text);
  if (!token || token->size() != 32) {
    contradiction(fmt::format("{} is not 64 hexadecimal digits; 'openssl rand -hex 32' makes one", kTokenVariable));
  }
  return std::move(*token);
}

std::map<std::string, std::string> to_environment(const LaunchEnv& env) {
  std::map<std::string, std::string> out{
      {"RANK", std::to_string(env.rank)},
      {"LOCAL_RANK", std::to_string(env.local_rank)},
      {"WORLD_SIZE", std::to_string(env.world_size)},
      {"LOCAL_WORLD_SIZE", std::to_string(env.local_world_size)},
      {"NODE_RANK", std::to_string(env.node_rank)},
      {"GROUP_RANK", std::to_string(env.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(env.num_nodes)},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", std::to_string(env.rank)},
      {"ROLE_WORLD_SIZE", std::to_string(env.world_size)},
      {"MASTER_ADDR", env.master_addr},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(env.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(env.max_restarts)},
      {"TORCHELASTIC_RUN_ID", env.job_id.empty() ? "none" : env.job_id},
      // Torch compares the value with "True", and then expects its own protocol on MASTER_PORT.
      {"TORCHELASTIC_USE_AGENT_STORE", env.torch_agent_store ? "True" : "False"},
      {"DSLAUNCH_HOST", env.host},
  };
  if (env.master_port) out["MASTER_PORT"] = std::to_string(env.master_port);
  if (!env.job_id.empty()) out[ports::kJobIdVariable] = env.job_id;
  if (!env.token.empty()) out[kTokenVariable] = to_hex(env.token);
  if (env.agent_store) out["DSLAUNCH_AGENT_STORE"] = "1";
  if (!env.rank_hosts.empty()) out["DSLAUNCH_RANK_HOSTS"] = pack_hosts(env.rank_hosts);
  return out;
}

LaunchEnv launch_env_from_environment() {
  LaunchEnv env;
  auto address = variable("MASTER_ADDR");
  if (address) env.master_addr = *address;
  read_ranks(env);
  read_nodes(env);
  env.host = variable("DSLAUNCH_HOST").value_or(host_name());
  env.job_id = variable(ports::kJobIdVariable).value_or("");
  bool ours = !is_nested(env);
  env.agent_store = ours && number("DSLAUNCH_AGENT_STORE", 0, 1).value_or(0) == 1;
  read_address(env, address);
  if (auto token = ours ? variable(kTokenVariable) : std::nullopt) env.token = parse_token(*token);
  if (auto hosts = variable("DSLAUNCH_RANK_HOSTS"); ours && hosts)
    env.rank_hosts = unpack_hosts(*hosts, env.world_size);
  env.restart_count = static_cast<int>(number("TORCHELASTIC_RESTART_COUNT", 0, kMaxRestarts).value_or(0));
  env.max_restarts = static_cast<int>(number("TORCHELASTIC_MAX_RESTARTS", 0, kMaxRestarts).value_or(0));
  if (!env.agent_store && variable("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    env.torch_agent_store = true;
    env.torch_run = fmt::format("{}.{}", variable("TORCHELASTIC_RUN_ID").value_or("none"), env.restart_count);
  }
  return env;
}

}  // namespace dslaunch::rendezvous
