#include "launch/jobs/job_socket.hpp"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "launch/jobs/job_client.hpp"
#include "launch/records/dead_sockets.hpp"
#include "launch/records/socket_path.hpp"
#include "support/set_env.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

// A supervisor's loop, turned by hand.
struct Desk {
  test::TempDir dir;
  std::string path = dir / "control.sock";
  FileThread files;
  ConsoleLog console{dir / "console.log", files};
  JobSocket socket{path, console};
  std::vector<StopRequest> stops;

  void turn() {
    PollSet polls;
    socket.add_to(polls);
    polls.add(files.fd(), POLLIN);
    polls.wait(Deadline::after(20ms));
    files.take_errors();
    for (const auto& stop : socket.serve(polls, [] { return std::string("{\"state\": \"running\"}"); })) {
      stops.push_back(stop);
    }
  }
  std::optional<JobAnswer> answer(JobClient& client) {
    for (int i = 0; i < 500; ++i) {
      turn();
      if (auto answer = client.await(Deadline::after(0ms))) return answer;
    }
    return std::nullopt;
  }
};

}  // namespace

TEST_CASE("requests and answers survive encoding and decoding", "[launch][job_socket]") {
  auto again = [](const JobRequest& request) { return decode_request(encode_request(request)); };
  CHECK(std::holds_alternative<StatusRequest>(again(StatusRequest{}).value()));
  CHECK(std::get<AttachRequest>(again(AttachRequest{1ULL << 40}).value()).from == 1ULL << 40);
  CHECK(std::get<StopRequest>(again(StopRequest{true, {}}).value()).now);
  CHECK(std::get<StacksRequest>(again(StacksRequest{{1, 2, 9}}).value()).ranks == std::vector<int>{1, 2, 9});
  CHECK(std::get<StacksRequest>(again(StacksRequest{}).value()).ranks.empty());
  CHECK(std::get<StopRequest>(again(StopRequest{false, 1500ms}).value()).grace == 1500ms);
  for (const char* text : {"", "{}", "[]", "null", "{\"ask\": \"fire\"}", "{\"ask\": 3}", "{\"ask\": \"attach\"}",
                           "{\"ask\": \"attach\", \"from\": \"x\"}", "GET / HTTP/1.1"}) {
    CAPTURE(text);
    CHECK_FALSE(decode_request(text).has_value());
  }
  AnswerReader reader;
  std::string bytes("a\n\0{\"end\"", 10);
  std::string sent = encode_answer(ConsolePiece{7, bytes}) + encode_answer(EndAnswer{{3, 9, "why"}});
  for (char c : sent.substr(0, sent.size() - 1)) reader.append({&c, 1});
  auto piece = std::get<ConsolePiece>(reader.next().value());
  CHECK((piece.at == 7 && piece.bytes == bytes));
  CHECK_FALSE(reader.next().has_value());
  reader.append("\n");
  CHECK(std::get<EndAnswer>(reader.next().value()).end == JobEnd{3, 9, "why"});
}

TEST_CASE("status and stop are answered", "[launch][job_socket]") {
  Desk desk;
  struct stat found;
  REQUIRE(::stat(desk.path.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
  JobClient client(desk.path);
  REQUIRE(client.send(StatusRequest{}));
  CHECK(std::get<StatusAnswer>(desk.answer(client).value()).document == "{\"state\":\"running\"}");
  REQUIRE(client.send(StopRequest{false, 2000ms}));
  CHECK(std::holds_alternative<Accepted>(desk.answer(client).value()));
  REQUIRE(desk.stops.size() == 1);
  CHECK(desk.stops[0].grace == 2000ms);
}

TEST_CASE("a request for stacks may be answered later", "[launch][job_socket]") {
  Desk desk;
  JobClient client(desk.path), other(desk.path);
  REQUIRE(client.send(StacksRequest{{0, 3, 4}}));
  REQUIRE(other.send(StatusRequest{}));
  REQUIRE(desk.answer(other).has_value());
  std::vector<JobSocket::PendingStacksRequest> asked;
  for (int i = 0; i < 500 && asked.empty(); ++i) {
    desk.turn();
    asked = desk.socket.take_stacks_requests();
  }
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].request.ranks == std::vector<int>{0, 3, 4});
  CHECK(desk.socket.take_stacks_requests().empty());
  const std::string large = "{\"text\":\"" + std::string(3U << 20, 'x') + "\"}";
  desk.socket.answer(asked[0].client, StacksAnswer{large});
  desk.socket.answer(asked[0].client + 1000, StacksAnswer{"{}"});  // whoever is gone
  CHECK(std::get<StacksAnswer>(desk.answer(client).value()).document == large);
}

TEST_CASE("an attached client gets the console from its position, new output and the end", "[launch][job_socket]") {
  Desk desk;
  desk.console.append("0123456789");
  JobClient client(desk.path);
  REQUIRE(client.send(AttachRequest{4}));
  CHECK(std::get<ConsolePiece>(desk.answer(client).value()).bytes == "456789");
  desk.console.append("more");
  auto piece = std::get<ConsolePiece>(desk.answer(client).value());
  CHECK((piece.at == 10 && piece.bytes == "more"));
  desk.console.append("last words");
  desk.socket.end({5, 0, ""});
  desk.files.wait(Deadline::never());
  CHECK(desk.socket.has_unsent());
  CHECK(std::get<ConsolePiece>(desk.answer(client).value()).bytes == "last words");
  CHECK(std::get<EndAnswer>(desk.answer(client).value()).end.exit_code == 5);
  CHECK_FALSE(desk.socket.has_unsent());
}

TEST_CASE("an attached client gets what is added as soon as it is in the file", "[launch][job_socket]") {
  Desk desk;
  desk.console.append("so far");
  JobClient client(desk.path);
  REQUIRE(client.send(AttachRequest{0}));
  REQUIRE(desk.answer(client).has_value());
  std::promise<void> gate;
  desk.files.submit(0, [gate = gate.get_future().share()] {
    gate.wait();
    return std::string();
  });
  desk.console.append("more");
  PollSet polls;
  desk.socket.add_to(polls);
  size_t files = polls.add(desk.files.fd(), POLLIN);
  gate.set_value();
  polls.wait(Deadline::after(5s));
  CHECK(polls.ready(files));
  CHECK(std::get<ConsolePiece>(desk.answer(client).value()).bytes == "more");
}

TEST_CASE("a client that does not read costs no memory and delays no other client", "[launch][job_socket]") {
  Desk desk;
  desk.console.append(std::string(50U << 20, 'x'));
  JobClient sleeper(desk.path), other(desk.path);
  REQUIRE(sleeper.send(AttachRequest{0}));
  for (int i = 0; i < 50; ++i) desk.turn();
  REQUIRE(other.send(StatusRequest{}));
  CHECK(std::holds_alternative<StatusAnswer>(desk.answer(other).value()));
  size_t got = 0;
  while (got < (50U << 20)) {
    auto answer = desk.answer(sleeper);
    REQUIRE(answer.has_value());
    got += std::get<ConsolePiece>(*answer).bytes.size();
  }
}

TEST_CASE("invalid input closes only its own connection", "[launch][job_socket]") {
  Desk desk;
  UniqueFd raw = connect_to(desk.path);
  REQUIRE(raw.valid());
  auto goes_away = [&](const std::string& bytes) {
    UniqueFd one = connect_to(desk.path);
    for (size_t at = 0; at < bytes.size();) {
      ssize_t sent = ::send(one.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) at += static_cast<size_t>(sent);
      desk.turn();
      if (sent < 0 && errno == EPIPE) break;
    }
    char buffer[4096];
    for (int i = 0; i < 500; ++i) {
      desk.turn();
      ssize_t got = ::recv(one.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
    }
    return false;
  };
  CHECK(goes_away("GET / HTTP/1.1\r\n\r\n"));
  CHECK(goes_away(std::string(100000, 'x')));
  CHECK(goes_away(std::string(5000, '\n')));
  JobClient client(desk.path);
  REQUIRE(client.send(StatusRequest{}));
  CHECK(desk.answer(client).has_value());
}

TEST_CASE("idle clients are dropped to make room for new ones", "[launch][job_socket]") {
  Desk desk;
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 64; ++i) {
    silent.push_back(connect_to(desk.path));
    desk.turn();
  }
  JobClient client(desk.path);
  REQUIRE(client.send(StatusRequest{}));
  CHECK(desk.answer(client).has_value());
}

TEST_CASE("connecting does not block when the queue of clients is full", "[launch][job_socket]") {
  test::TempDir dir;
  UniqueFd listener = listen_at(dir / "s");
  std::vector<UniqueFd> waiting;
  do {
    REQUIRE(waiting.size() < 1000);
    waiting.push_back(connect_to(dir / "s"));
  } while (waiting.back().valid());
  CHECK_FALSE(JobClient(dir / "s").send(StatusRequest{}));
}

TEST_CASE("a client is rejected when no descriptor is left", "[launch][job_socket]") {
  Desk desk;
  JobClient client(desk.path);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  UniqueFd next(::dup(0));
  const rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
  next.reset();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  desk.turn();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  PollSet polls;
  const size_t index = polls.add(client.fd(), POLLIN);
  polls.wait(Deadline::after(5s));
  REQUIRE(polls.ready(index));
  CHECK_FALSE(client.receive());  // its end
  JobClient later(desk.path);
  REQUIRE(later.send(StatusRequest{}));
  CHECK(desk.answer(later).has_value());
}

TEST_CASE("a socket path longer than sun_path works; without a listener there is no connection",
          "[launch][job_socket]") {
  test::TempDir dir;
  std::string deep = dir / std::string(120, 'd');
  REQUIRE(::mkdir(deep.c_str(), 0700) == 0);
  CHECK_FALSE(connect_to(deep + "/s").valid());
  UniqueFd listener = listen_at(deep + "/s");
  UniqueFd connection = connect_to(deep + "/s");
  REQUIRE(connection.valid());
  CHECK(peer_is_this_user(connection));
  CHECK_FALSE(JobClient("").connected());
}

TEST_CASE("only sockets of dead launchers are removed", "[launch][job_socket]") {
  test::TempDir dir;
  const test::SetEnv runtime("XDG_RUNTIME_DIR", dir.path());
  const std::string living = choose_socket_path("20260131-174502-4711-c0de1234", "");
  const std::string dead = choose_socket_path("20260131-174502-4712-c0de", "");
  const std::string foreign = dir / "dslaunch/agent.sock", file = dir / "dslaunch/20260131-174502-4713-c0de.sock";
  UniqueFd listener = listen_at(living);
  for (const auto& path : {dead, foreign}) UniqueFd gone = listen_at(path);
  dir.write("dslaunch/20260131-174502-4713-c0de.sock", "a plain file");
  remove_dead_sockets();
  CHECK(connect_to(living).valid());
  CHECK_FALSE(std::filesystem::exists(dead));
  CHECK(std::filesystem::exists(foreign));
  CHECK(std::filesystem::exists(file));
}

TEST_CASE("an inaccessible XDG_RUNTIME_DIR is not used", "[launch][job_socket]") {
  test::TempDir dir;
  std::filesystem::create_symlink("loop", dir / "loop");
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string kept = before == nullptr ? "" : before;
  for (const std::string& runtime : {dir / std::string(300, 'a'), dir / "loop", dir / "none", "/dev/null/x"s}) {
    INFO(runtime);
    ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
    CHECK(choose_socket_path("job-1", "/else/control.sock") == "/else/control.sock");
  }
  ::setenv("XDG_RUNTIME_DIR", kept.c_str(), 1);
  if (before == nullptr) ::unsetenv("XDG_RUNTIME_DIR");
}
