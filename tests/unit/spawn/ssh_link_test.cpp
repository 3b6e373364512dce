// Both ways to a real sshd, and what they say when it does not work: one body for libssh and for OpenSSH's program.
#include "spawn/ssh/ssh_link.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <random>
#include <thread>

#include "spawn/ssh/push.hpp"
#include "spawn/ssh/run_remote.hpp"
#include "support/temp_dir.hpp"
#include "unit/spawn/link_ends.hpp"
#include "unit/spawn/sshd.hpp"

using namespace dslaunch;
using namespace dslaunch::spawn;
using namespace std::chrono_literals;

namespace {

bool skipped() {
  std::signal(SIGPIPE, SIG_IGN);
  if (Sshd::available()) return false;
  WARN("skipped: needs root and Debian's openssh-server");
  return true;
}

SshTarget target_of(const Sshd& sshd) {
  return {.host = "127.0.0.1", .user = "", .port = sshd.port()};
}

enum class Way { kLibssh, kProgram };

SshOptions options_for(Way way, const Sshd& sshd) {
  SshOptions options;
  if (way == Way::kProgram) options.program = sshd.ssh_program();
  return options;
}

struct Outcome {
  std::string output;
  std::optional<LinkFailure> failure;
  std::optional<ExitCause> cause;
};

Outcome run(const SshTarget& target, const std::vector<std::string>& argv, const SshOptions& options,
            std::string_view input = {}) {
  auto link = open_ssh_link(target, argv, options);
  Outcome outcome;
  outcome.output = converse(*link, input);
  outcome.failure = link->failure();
  outcome.cause = link->cause();
  CHECK(link->wait(Deadline::after(5s)));
  return outcome;
}

void check_failure(const Outcome& outcome, ExitCode code, const std::string& phase,
                   const std::vector<std::string>& texts) {
  REQUIRE(outcome.failure);
  INFO(outcome.failure->text);
  CHECK(outcome.failure->code == code);
  CHECK(outcome.failure->phase == phase);
  for (const auto& text : texts) CHECK(outcome.failure->text.find(text) != std::string::npos);
}

std::string noise(size_t size) {
  std::string bytes(size, '\0');
  std::mt19937_64 random(7);
  for (size_t i = 0; i + 8 <= size; i += 8) {
    uint64_t word = random();
    bytes.replace(i, 8, reinterpret_cast<const char*>(&word), 8);
  }
  return bytes;
}

// Of this process, all its threads together.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Kilobytes of memory of this process that are in use.
long resident_kb() {
  std::ifstream file("/proc/self/statm");
  long pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4;
}

std::string read_until(int fd, std::string_view text) {
  std::string got;
  char buffer[256];
  while (got.find(text) == std::string::npos) {
    pollfd poll{fd, POLLIN, 0};
    ::poll(&poll, 1, -1);
    ssize_t size = ::read(fd, buffer, sizeof buffer);
    if (size == 0) break;
    if (size > 0) got.append(buffer, static_cast<size_t>(size));
  }
  return got;
}

}  // namespace

TEST_CASE("every byte arrives, both ways, to the last", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  std::string bytes = noise(64 << 20);
  auto outcome = run(target_of(sshd), {"/bin/cat"}, options_for(way, sshd), bytes);
  CHECK_FALSE(outcome.failure);
  CHECK(outcome.cause == ExitCause{});
  CHECK(outcome.output.size() == bytes.size());
  CHECK((outcome.output == bytes));
}

TEST_CASE("arguments arrive unchanged through the login shell", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  std::string odd = "a b\n'\"$HOME`id`;*~\\!#\t";
  auto outcome = run(target_of(sshd), {"printf", "%s|%s|%s", odd, "", "-x"}, options_for(way, sshd));
  CHECK(outcome.output == odd + "||-x");
}

TEST_CASE("the failure contains the remote side's output", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  sshd.write(".bashrc", "echo Welcome to the cluster\necho quota exceeded >&2\n");
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  auto options = options_for(way, sshd);
  auto missing = run(target_of(sshd), {"/no/such/dslaunch", "agent"}, options);
  CHECK(missing.output == "Welcome to the cluster\n");
  check_failure(
      missing, ExitCode::kUnavailable, "start",
      {"there is no /no/such/dslaunch on 127.0.0.1", "quota exceeded", "No such file", "--remote_path DIR", "--push"});
  check_failure(run(target_of(sshd), {"/etc"}, options), ExitCode::kUnavailable, "start",
                {"cannot execute", "directory"});
  auto killed = run(target_of(sshd), {"sh", "-c", "kill -9 $$"}, options);
  REQUIRE(killed.failure);
  CHECK(killed.failure->phase == "connection");
  for (int round = 0; round < (way == Way::kLibssh ? 10 : 2);
       ++round) {  // an end so quick that it overtakes the answer to its start
    CHECK(run(target_of(sshd), {"sh", "-c", "exit 7"}, options).cause == ExitCause{.number = 7});
  }
}

TEST_CASE("an unknown or changed host key is refused", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  auto options = options_for(way, sshd);
  std::string port = std::to_string(sshd.port());
  sshd.write(".ssh/known_hosts", "");
  auto unknown = run(target_of(sshd), {"true"}, options);
  check_failure(unknown, ExitCode::kPermission, "host key", {"is not known", "ssh -p " + port + " 127.0.0.1"});
  if (way == Way::kLibssh)
    check_failure(unknown, ExitCode::kPermission, "host key", {sshd.fingerprint(), "ssh-keyscan"});
  sshd.trust_another();
  check_failure(run(target_of(sshd), {"true"}, options), ExitCode::kPermission, "host key",
                {"CHANGED", ".ssh/known_hosts:2", "ssh-keygen -R"});
}

TEST_CASE("the ssh program accepts an unknown host key if the user's configuration does", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  sshd.write(".ssh/known_hosts", "");
  sshd.write(".ssh/config", sshd.read(sshd.home() / ".ssh/config") + "  StrictHostKeyChecking accept-new\n");
  CHECK_FALSE(run(target_of(sshd), {"true"}, options_for(Way::kProgram, sshd)).failure);
  CHECK_FALSE(sshd.read(sshd.home() / ".ssh/known_hosts").empty());
}

TEST_CASE("a known host under a hashed name is known", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  Sshd::run({"/usr/bin/ssh-keygen", "-q", "-H", "-f", (sshd.home() / ".ssh/known_hosts").string()});
  REQUIRE(sshd.read(sshd.home() / ".ssh/known_hosts").starts_with("|1|"));
  CHECK_FALSE(run(target_of(sshd), {"true"}, {}).failure);
}

TEST_CASE("an authentication that fails names user, keys and methods", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  std::string other = (sshd.home() / ".ssh/other").string();
  if (!std::filesystem::exists(other)) Sshd::make_key(other);
  sshd.write(".ssh/config", "IdentityFile " + other + "\nIdentitiesOnly yes\n");
  auto failed = run(target_of(sshd), {"true"}, options_for(way, sshd));
  check_failure(failed, ExitCode::kPermission, "authentication", {"publickey", "ssh-copy-id"});
  if (way == Way::kLibssh) check_failure(failed, ExitCode::kPermission, "authentication", {other, "no ssh-agent"});
}

TEST_CASE("a key with a passphrase is named, without a prompt", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  std::string locked = (sshd.home() / ".ssh/locked").string();
  Sshd::run({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked});
  sshd.write(".ssh/config", "IdentityFile " + locked + "\n");
  check_failure(run(target_of(sshd), {"true"}, {}), ExitCode::kPermission, "authentication",
                {locked + " (needs a passphrase", "ssh-add"});
}

TEST_CASE("unreachable hosts have a reason", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  auto options = options_for(way, sshd);
  auto refused = run({"127.0.0.1", "", unused_port()}, {"true"}, options);
  check_failure(refused, ExitCode::kUnavailable, "connect", {"Connection refused"});
  check_failure(run({"no-such-host.invalid", "", 22}, {"true"}, options), ExitCode::kUnavailable, "resolve",
                {"no-such-host.invalid"});
}

TEST_CASE("a host that accepts and stays silent times out", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  SilentPort silent;
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  auto options = options_for(way, sshd);
  options.connect_timeout = way == Way::kLibssh ? 200ms : 1s;
  auto outcome = run({"127.0.0.1", "", silent.port()}, {"true"}, options);
  check_failure(outcome, ExitCode::kUnavailable, "connect", {});
}

TEST_CASE("the user's configuration is followed, and the command line goes before it", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  std::string config = "Host alias*\n  HostName 127.0.0.1\n  Port " + std::to_string(sshd.port()) +
                       "\n  User nobody-here\n" + "Host *\n  IdentityFile " + sshd.client_key() + "\n";
  sshd.write(".ssh/config", config);
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  auto options = options_for(way, sshd);
  auto output = run({"alias7", "root", {}}, {"id", "-un"}, options);
  INFO((output.failure ? output.failure->text : ""));
  CHECK(output.output == "root\n");
  check_failure(run({"alias7", "", {}}, {"true"}, options), ExitCode::kPermission, "authentication", {"nobody-here"});
  check_failure(run({"alias7", "root", unused_port()}, {"true"}, options), ExitCode::kUnavailable, "connect",
                {"Connection refused"});
}

TEST_CASE("connects through a jump host", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  std::string port = std::to_string(sshd.port());
  sshd.write(".ssh/config", "Host inner\n  HostName 127.0.0.1\n  Port " + port + "\n  ProxyJump outer\n" +
                                "Host outer\n  HostName 127.0.0.1\n  Port " + port + "\n" +
                                "Host *\n  User root\n  IdentityFile " + sshd.client_key() + "\n");
  sshd.put_ssh_into_path();
  auto output = run({"inner", "", {}}, {"sh", "-c", "echo $SSH_CONNECTION"}, {});
  INFO((output.failure ? output.failure->text : ""));
  CHECK(output.output.find(" " + port + "\n") != std::string::npos);
  CHECK(sshd.errors().find("direct-tcpip") == std::string::npos);

  sshd.write(".ssh/config", "Host inner\n  HostName 127.0.0.1\n  ProxyCommand echo the gate is shut >&2; exit 1\n");
  check_failure(run({"inner", "", {}}, {"true"}, {}), ExitCode::kUnavailable, "connect", {"the gate is shut", "proxy"});
  sshd.write(".ssh/config", "Host *\n  ProxyCommand touch " + (sshd.home() / "%h").string() + "\n");
  check_failure(run({"x;touch y", "", {}}, {"true"}, {}), ExitCode::kUnavailable, "resolve", {"is not a host name"});
}

TEST_CASE("sixty-four links at once outlast an sshd that takes two at a time", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd("MaxStartups 2\n");
  SshOptions options;
  options.connect_timeout = 60s;
  std::vector<std::unique_ptr<CommandLink>> links;
  for (int i = 0; i < 64; ++i) links.push_back(open_ssh_link(target_of(sshd), {"echo", std::to_string(i)}, options));
  for (int i = 0; i < 64; ++i) {
    std::string output = converse(*links[static_cast<size_t>(i)]);
    auto failure = links[static_cast<size_t>(i)]->failure();
    INFO((failure ? failure->text : ""));
    CHECK(output == std::to_string(i) + "\n");
  }
  CHECK(sshd.errors().find("MaxStartups") != std::string::npos);
}

TEST_CASE("the ssh program is started again when sshd drops it", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd("MaxStartups 1\n");
  auto options = options_for(Way::kProgram, sshd);
  options.connect_timeout = 60s;
  std::vector<std::unique_ptr<CommandLink>> links;
  for (int i = 0; i < 6; ++i) links.push_back(open_ssh_link(target_of(sshd), {"cat"}, options));
  for (auto& link : links) {
    std::string output = converse(*link, "written at once");
    auto failure = link->failure();
    INFO((failure ? failure->text : ""));
    CHECK(output == "written at once");
  }
}

TEST_CASE("an sshd that stays busy is named when the deadline passes", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd("MaxStartups 1\nLoginGraceTime 60\n");
  Idle idle(sshd.port());
  SshOptions options;
  options.connect_timeout = 500ms;
  check_failure(run(target_of(sshd), {"true"}, options), ExitCode::kUnavailable, "connect", {"MaxStartups", "tried"});
}

TEST_CASE("a link fails when its sshd dies", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  if (!sshd.running()) return;
  auto link = open_ssh_link(target_of(sshd), {"sh", "-c", "echo ready; exec cat"}, options_for(way, sshd));
  LinkEnds ends = link->take_ends();
  CHECK(read_until(ends.from_agent.get(), "ready\n") == "ready\n");
  sshd.end_sessions();
  CHECK(read_until(ends.from_agent.get(), "never").empty());
  REQUIRE(link->failure());
  INFO(link->failure()->text);
  CHECK(link->failure()->phase == "connection");
  CHECK(link->failure()->code == ExitCode::kUnavailable);
}

TEST_CASE("a slow reader blocks the remote side", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto link = open_ssh_link(target_of(sshd), {"head", "-c", "100000000", "/dev/zero"}, {});
  LinkEnds ends = link->take_ends();
  size_t total = 0;
  [[maybe_unused]] long most = 0, before = 0;
  std::string buffer(1 << 16, '\0');
  for (int round = 0;; ++round) {
    pollfd poll{ends.from_agent.get(), POLLIN, 0};
    ::poll(&poll, 1, -1);
    ssize_t got = ::read(ends.from_agent.get(), buffer.data(), buffer.size());
    if (got <= 0) break;
    total += static_cast<size_t>(got);
    if (round == 20) before = resident_kb();
    for (int work = 0; work < 20; ++work) most = std::max(most, resident_kb());
  }
  CHECK(total == 100000000);
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed for a while
  CHECK(most - before < 16 << 10);
#endif
}

TEST_CASE("input passes, and nothing spins, while the output is not read", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  test::TempDir dir;
  const std::string heard = dir / "heard";
  auto link = open_ssh_link(target_of(sshd), {"sh", "-c", "yes | head -c 30000000 & cat >" + heard + "; wait"}, {});
  LinkEnds ends = link->take_ends();
  pollfd poll{ends.from_agent.get(), POLLIN, 0};
  ::poll(&poll, 1, -1);  // the output has begun; nobody reads it
  for (uintmax_t round = 1; round <= 20; ++round) {
    REQUIRE(::write(ends.to_agent.get(), "x", 1) == 1);
    const Deadline patience = Deadline::after(5s);
    std::error_code not_yet;
    while (std::filesystem::file_size(heard, not_yet) != round && !patience.passed()) std::this_thread::yield();
    REQUIRE(std::filesystem::file_size(heard) == round);
  }
  const double before = processor_seconds();
  CHECK_FALSE(link->wait(Deadline::after(500ms)));  // it is not over, and rests
  CHECK(processor_seconds() - before < 0.05 * 0.5);
  ends.to_agent.reset();
  std::string buffer(1 << 16, '\0');
  size_t total = 0;
  for (ssize_t got = 1; got != 0;) {
    ::poll(&poll, 1, -1);
    got = ::read(ends.from_agent.get(), buffer.data(), buffer.size());
    total += got > 0 ? static_cast<size_t>(got) : 0;
  }
  CHECK(total == 30000000);
}

TEST_CASE("a killed link ends at once, and so does its command", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  auto link = open_ssh_link(target_of(sshd), {"sh", "-c", "echo ready; exec cat"}, options_for(way, sshd));
  LinkEnds ends = link->take_ends();
  read_until(ends.from_agent.get(), "ready\n");
  link->kill();
  CHECK(link->wait(Deadline::after(5s)));
  CHECK_FALSE(link->failure());
  CHECK(read_until(ends.from_agent.get(), "never").empty());
  Deadline soon = Deadline::after(5s);
  while (!sshd.children().empty() && !soon.passed()) std::this_thread::yield();
  CHECK(sshd.children().empty());
}

TEST_CASE("links destroyed while connecting leave nothing behind", "[spawn][ssh_link][sshd]") {
  if (skipped()) return;
  SilentPort silent;
  Sshd sshd;
  for (int i = 0; i < 20; ++i) open_ssh_link({"127.0.0.1", "", silent.port()}, {"true"}, {});
  auto link = open_ssh_link({"127.0.0.1", "", silent.port()}, {"true"}, {});
  link->kill();
  CHECK(link->wait(Deadline::after(5s)));
}

TEST_CASE("a remote command gives its code, output and errors", "[spawn][run_remote][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  auto options = options_for(way, sshd);
  auto soon = [] { return Deadline::after(10s); };
  auto result = run_remote(target_of(sshd), {"sh", "-c", "cat; echo bad >&2; exit 5"}, "in", options, soon());
  CHECK(result.exit_code == 5);
  CHECK(result.out == "in");
  CHECK(result.err == "bad\n");
  CHECK_FALSE(result.failure);
  // More input than it reads.
  CHECK(run_remote(target_of(sshd), {"true"}, noise(4 << 20), options, soon()).success());
  auto late = run_remote(target_of(sshd), {"sleep", "1000"}, "", options, Deadline::after(300ms));
  REQUIRE(late.failure);
  CHECK(late.failure->code == ExitCode::kTimeout);
  auto refused = run_remote({"127.0.0.1", "", unused_port()}, {"true"}, "", options, soon());
  REQUIRE(refused.failure);
  CHECK(refused.failure->phase == "connect");
  CHECK_FALSE(refused.exit_code);
}

TEST_CASE("programs are pushed once, by hash, and again when the copy is damaged", "[spawn][push][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  sshd.write(".bashrc", "echo dslaunch-push: a greeting that looks like ours\n");
  auto way = GENERATE(Way::kLibssh, Way::kProgram);
  auto options = options_for(way, sshd);
  std::filesystem::remove_all(sshd.home() / ".cache");
  test::TempDir dir;
  std::string program = dir.write("dslaunch", "#!/bin/sh\necho $((6 * 7))\n"),
              module = dir.write("m.so", noise(300001));
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  auto set = read_push_set({{program, "bin/dslaunch"}, {module, "lib/dslaunch/m.so"}});
  auto push = [&](const PushSet& what) {
    auto result = push_programs(target_of(sshd), what, options, Deadline::after(20s), 20s);
    INFO((result.failure ? result.failure->text : ""));
    CHECK_FALSE(result.failure);
    return result;
  };
  auto first = push(set);
  CHECK(first.copied);
  CHECK(first.dir == (sshd.home() / ".cache/dslaunch/push" / set.hash).string());
  CHECK(run(target_of(sshd), {first.dir + "/bin/dslaunch"}, options).output.ends_with("42\n"));
  CHECK(sshd.read(first.dir + "/lib/dslaunch/m.so") == noise(300001));
  using std::filesystem::perms;
  CHECK(std::filesystem::status(first.dir).permissions() == perms::owner_all);
  CHECK(std::filesystem::status(first.dir + "/bin/dslaunch").permissions() == perms::owner_all);
  CHECK(std::filesystem::status(first.dir + "/lib/dslaunch/m.so").permissions() ==
        (perms::owner_read | perms::owner_write));

  CHECK_FALSE(push(set).copied);
  std::ofstream(first.dir + "/lib/dslaunch/m.so", std::ios::app) << "x";
  CHECK(push(set).copied);
  CHECK_FALSE(push(set).copied);

  dir.write("dslaunch", "#!/bin/sh\necho newer\n");
  auto newer = push(read_push_set({{program, "bin/dslaunch"}, {module, "lib/dslaunch/m.so"}}));
  CHECK(newer.copied);
  CHECK(newer.dir != first.dir);
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(sshd.home() / ".cache/dslaunch/push"))
    ++entries;
  CHECK(entries == 2);  // nothing aside is left
}

TEST_CASE("hosts that share a home may be pushed to at once", "[spawn][push][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  test::TempDir dir;
  auto set = read_push_set({{dir.write("dslaunch", noise(3 << 20)), "bin/dslaunch"}});
  std::vector<std::thread> threads;
  std::vector<PushResult> results(6);
  for (auto& result : results) {
    threads.emplace_back([&] { result = push_programs(target_of(sshd), set, {}, Deadline::after(30s), 20s); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) {
    INFO((result.failure ? result.failure->text : ""));
    CHECK(result.dir == results[0].dir);
    CHECK_FALSE(result.dir.empty());
  }
}

TEST_CASE("a failed push contains the remote side's output", "[spawn][push][sshd]") {
  if (skipped()) return;
  Sshd sshd;
  sshd.write(".cache", "a file where the folder should be");
  test::TempDir dir;
  auto set = read_push_set({{dir.write("dslaunch", "x"), "bin/dslaunch"}});
  auto result = push_programs(target_of(sshd), set, {}, Deadline::after(10s), 20s);
  REQUIRE(result.failure);
  INFO(result.failure->text);
  CHECK(result.failure->phase == "push");
  CHECK(result.failure->text.find(".cache") != std::string::npos);
  CHECK(result.failure->text.find("--remote_path DIR") != std::string::npos);
}
