#include "launch/channel/wire.hpp"

#include <catch2/catch.hpp>

#include "base/byte_fields.hpp"
#include "base/error.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

const std::string kOdd = std::string("a\0b\nc\r\xff\x80 \"'", 12);

JobDescription odd_job() {
  JobDescription job;
  job.job_id = "20260131-1";
  job.kind = JobKind::kRun;
  job.token = {0, 1, 255, 0};
  job.master_addr = "::1";
  job.master_port = 65535;
  job.world_size = 3;
  job.num_nodes = 2;
  job.node_rank = 1;
  job.host = kOdd;
  job.rank_hosts = {"a", "", kOdd};
  job.node_addresses = {"10.0.0.1", "fe80::1"};
  job.cwd = "/tmp/with space";
  job.environment_base = EnvironmentBase::kAgents;
  job.env = {{"EMPTY", ""}, {"ODD", kOdd}};
  job.binding = {BindingKind::kCoreComplex, "0-3,8"};
  job.venv = "/venv";
  job.restart_count = 2;
  job.max_restarts = 5;
  job.files = {{"/ds.json", kOdd}};
  job.preflight = {"dsworker 1", "/m.pt", 1ULL << 40, ~0ULL};
  job.silence_limit = std::chrono::milliseconds(20000);
  job.heartbeat_interval = std::chrono::milliseconds(2000);
  job.ranks = {{2, 0, {"sh", "-c", kOdd, ""}, {{"CUDA_VISIBLE_DEVICES", "3"}}}};
  return job;
}

// The variant that carries the type; of a heartbeat, one of the two.
template <class T>
using Carrier = std::conditional_t<std::is_constructible_v<MessageToAgent, T>, MessageToAgent, MessageToLauncher>;

template <class T>
T round_trip(const T& message) {
  FrameReader<Carrier<T>> reader;
  reader.append(encode(Carrier<T>(message)));
  auto read = reader.next();
  REQUIRE(read.has_value());
  REQUIRE(std::holds_alternative<T>(*read));
  CHECK_FALSE(reader.next().has_value());
  CHECK(reader.num_pending() == 0);
  return std::get<T>(*read);
}

template <class Message>
void expect_refused(const std::vector<Message>& messages) {
  for (const auto& message : messages) {
    FrameReader<Message> reader;
    reader.append(encode(message));
    CHECK_THROWS_AS(reader.next(), Error);
  }
}

}  // namespace

TEST_CASE("a job description keeps every byte of every field", "[launch][wire]") {
  JobDescription job = odd_job(), read = round_trip(job);
  CHECK(read.job_id == job.job_id);
  CHECK(read.kind == job.kind);
  CHECK(read.token == job.token);
  CHECK(read.master_addr == job.master_addr);
  CHECK(read.master_port == 65535);
  CHECK(read.world_size == 3);
  CHECK(read.num_nodes == 2);
  CHECK(read.node_rank == 1);
  CHECK(read.host == kOdd);
  CHECK(read.rank_hosts == job.rank_hosts);
  CHECK(read.node_addresses == job.node_addresses);
  CHECK(read.cwd == job.cwd);
  CHECK(read.environment_base == EnvironmentBase::kAgents);
  CHECK(read.env == job.env);
  CHECK(read.binding.kind == BindingKind::kCoreComplex);
  CHECK(read.binding.core_list == "0-3,8");
  CHECK((read.venv == "/venv" && read.restart_count == 2 && read.max_restarts == 5));
  CHECK(read.files == job.files);
  CHECK((read.preflight.worker_version == "dsworker 1" && read.preflight.model == "/m.pt"));
  CHECK((read.preflight.model_bytes == 1ULL << 40 && read.preflight.model_fingerprint == ~0ULL));
  CHECK(read.silence_limit.count() == 20000);
  CHECK(read.heartbeat_interval.count() == 2000);
  REQUIRE(read.ranks.size() == 1);
  CHECK(read.ranks[0].rank == 2);
  CHECK(read.ranks[0].argv == job.ranks[0].argv);
  CHECK(read.ranks[0].env == job.ranks[0].env);
}

TEST_CASE("the smaller messages keep their fields", "[launch][wire]") {
  CHECK(round_trip(StartRanks{29500}).master_port == 29500);
  CHECK(round_trip(StopRanks{std::chrono::milliseconds(15000)}).grace.count() == 15000);
  CHECK(round_trip(SignalRanks{12}).signal == 12);
  AgentHello hello = round_trip(AgentHello{kWireVersion,
                                           "1.2",
                                           4711,
                                           "vm",
                                           "10.0.0.1",
                                           {"10.0.0.1", "fd00::1"},
                                           {"GPU-a", "1"},
                                           "GPU 2 is lost",
                                           2,
                                           "exec -- a",
                                           1ULL << 63});
  CHECK((hello.program_version == "1.2" && hello.pid == 4711 && hello.host_name == "vm"));
  CHECK((hello.address == "10.0.0.1" && hello.devices.size() == 2 && hello.num_slots == 2 &&
         hello.device_error == "GPU 2 is lost"));
  CHECK((hello.command == "exec -- a" && hello.command_hash == 1ULL << 63));
  CHECK(hello.addresses == std::vector<std::string>{"10.0.0.1", "fd00::1"});
  CHECK(round_trip(RanksMissing{{3, 5}}).ranks == std::vector<int>{3, 5});
  JobEnded ended_job = round_trip(JobEnded{137, true, kOdd});
  CHECK((ended_job.exit_code == 137 && ended_job.again && ended_job.summary == kOdd));
  round_trip(Heartbeat{});
  CHECK(round_trip(SignalTaken{10}).signal == 10);
  CHECK(round_trip(AgentReady{1}).master_port == 1);
  auto failed = round_trip(AgentFailed{69, kOdd});
  CHECK((failed.exit_code == 69 && failed.message == kOdd));
  CHECK(round_trip(RankStarted{5, 1LL << 40}).pid == 1LL << 40);
  auto output = round_trip(RankOutput{1, Stream::kErr, kOdd});
  CHECK((output.rank == 1 && output.stream == Stream::kErr && output.bytes == kOdd));
  CHECK(round_trip(AgentDone{3}).num_leftovers == 3);
  const std::vector<RankActivity> activities{{1, RankState::kStopped, 4711}, {7, RankState::kBusy, 0}};
  CHECK(round_trip(RankStates{activities}).changed == activities);
  const auto wanted = round_trip(StacksWanted{7, {0, 3}});
  CHECK((wanted.request == 7 && wanted.ranks == std::vector<int>{0, 3}));
  const RankStacks stacks{7, {{3, 4711, "gdb", kOdd, "a note"}}, "trouble"};
  const auto read_stacks = round_trip(stacks);
  CHECK((read_stacks.request == 7 && read_stacks.stacks == stacks.stacks && read_stacks.error == "trouble"));
  const spawn::StuckProcess stuck{4711, 1ULL << 40, 'D', kOdd};
  CHECK((round_trip(ProcessStuck{5, stuck}).process == stuck && round_trip(ProcessStuck{-1, stuck}).rank == -1));
  spawn::ExitCause cause{spawn::ExitCause::Kind::kSignaled, 11, true, kOdd};
  auto ended = round_trip(RankEnded{4, cause, true});
  CHECK((ended.rank == 4 && ended.cause == cause && ended.stopped_by_us));
}

TEST_CASE("the version is read from a greeting of another version", "[launch][wire]") {
  std::string bytes = encode(AgentHello{kWireVersion + 1, "9.9", 1, "vm", "", {}, {}, "", 0, "", 0}) +
                      encode(MessageToLauncher(Heartbeat{}));
  bytes.insert(bytes.begin() + 40, 'x');  // a longer message than ours
  bytes[0] = static_cast<char>(bytes[0] + 1);
  FrameReader<MessageToLauncher> reader;
  reader.append(bytes);
  auto hello = std::get<AgentHello>(reader.next().value());
  CHECK((hello.version == kWireVersion + 1 && hello.program_version == "9.9"));
  CHECK(std::holds_alternative<Heartbeat>(reader.next().value()));
}

TEST_CASE("messages may arrive byte by byte and several at once", "[launch][wire]") {
  std::string bytes = encode(RankStarted{1, 2}) + encode(RankOutput{1, Stream::kOut, kOdd}) + encode(AgentDone{});
  FrameReader<MessageToLauncher> slow;
  int count = 0;
  for (char byte : bytes) {
    slow.append({&byte, 1});
    while (slow.next()) ++count;
  }
  CHECK(count == 3);
  FrameReader<MessageToLauncher> fast;
  fast.append(bytes);
  count = 0;
  while (fast.next()) ++count;
  CHECK(count == 3);
}

TEST_CASE("unexpected data on the channel is refused and shown", "[launch][wire]") {
  FrameReader<MessageToLauncher> reader;
  reader.append("Welcome to node7!\nLast login: today\n");
  try {
    reader.next();
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("Welcome to node7!"));
  }
}

TEST_CASE("frames that are cut, too long or of an unknown type are refused", "[launch][wire]") {
  std::string good = encode(RankStarted{1, 2});
  for (auto change : {0, 1, 2}) {
    std::string bad = good;
    if (change == 0) bad[4] = 0;    // no type
    if (change == 1) bad[4] = 100;  // unknown type
    if (change == 2) {              // a byte more than the message has
      bad[0] = static_cast<char>(bad[0] + 1);
      bad += 'x';
    }
    FrameReader<MessageToLauncher> reader;
    reader.append(bad);
    CHECK_THROWS_AS(reader.next(), Error);
  }
  FrameReader<MessageToLauncher> shortened;
  std::string bad = good.substr(0, good.size() - 1);
  bad[0] = static_cast<char>(bad[0] - 1);
  shortened.append(bad);
  CHECK_THROWS_AS(shortened.next(), Error);
}

TEST_CASE("a message that ends within any of its fields is refused", "[launch][wire]") {
  const std::string good = encode(odd_job());
  for (size_t length = 1; length < good.size() - 4; ++length) {
    FrameReader<MessageToAgent> reader;
    reader.append(ByteWriter().count(length).take() + good.substr(4, length));
    CHECK_THROWS_AS(reader.next(), Error);
  }
}

TEST_CASE("a value that its field may not have is refused", "[launch][wire]") {
  JobDescription job = odd_job();
  job.ranks.front().local_rank = -1;
  JobDescription other_kind = odd_job();
  other_kind.binding.kind = static_cast<BindingKind>(7);
  spawn::ExitCause cause;
  cause.number = 256;
  expect_refused<MessageToAgent>(
      {job, other_kind, StopRanks{std::chrono::milliseconds(-1)}, SignalRanks{0}, JobEnded{256, false, ""}});
  expect_refused<MessageToLauncher>({
      SignalTaken{65},
      AgentFailed{0, ""},
      RankOutput{-1, Stream::kOut, ""},
      RankOutput{0, static_cast<Stream>(2), ""},
      RankEnded{0, cause, false},
      RankStates{{{0, static_cast<RankState>(4), 0}}},
      ProcessStuck{-2, {}},
  });
}

TEST_CASE("a message for the other end is refused", "[launch][wire]") {
  FrameReader<MessageToLauncher> launcher;
  launcher.append(encode(StartRanks{1}));
  CHECK_THROWS_AS(launcher.next(), Error);
  FrameReader<MessageToAgent> agent;
  agent.append(encode(AgentReady{1}));
  CHECK_THROWS_AS(agent.next(), Error);
}

// The bytes are those of docs/control_channel.md.
TEST_CASE("a frame has the documented bytes", "[launch][wire]") {
  const std::string frame = encode(RankOutput{258, Stream::kErr, "ab"});
  CHECK(frame == std::string("\x10\0\0\0\x09\2\1\0\0\0\0\0\0\1\2\0\0\0ab", 20));
}
