#include "spawn/ssh/explain.hpp"

#include <catch2/catch.hpp>

#include "spawn/failure_table.hpp"
#include "spawn/greeting.hpp"

using namespace dslaunch;
using namespace dslaunch::spawn;

namespace {

const SshTarget kNode{.host = "node7", .user = "me", .port = 2222};
const SshOptions kProgram{.program = "ssh", .port = {}, .connect_timeout = std::chrono::seconds(5)};

LinkFailure ssh_said(const std::string& errors, int code = 255) {
  return explain_ssh_program(kNode, kProgram, "/opt/dslaunch", {.kind = ExitCause::Kind::kExited, .number = code},
                             errors);
}

bool says(const LinkFailure& failure, const std::string& text) {
  return failure.text.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("maps OpenSSH's messages to phases, codes and advice", "[spawn][ssh_explain]") {
  struct Row {
    std::string words;
    ExitCode code;
    std::string phase, advice;
  };
  auto row = GENERATE(values<Row>({
      {"ssh: Could not resolve hostname node7: Name or service not known\r\n", ExitCode::kUnavailable, "resolve",
       "hostfile"},
      {"ssh: connect to host node7 port 2222: Connection refused\r\n", ExitCode::kUnavailable, "connect",
       "ssh -p 2222"},
      {"ssh: connect to host node7 port 2222: Connection timed out\r\n", ExitCode::kUnavailable, "connect", "is it up"},
      {"Connection timed out during banner exchange\r\nConnection to 10.0.0.7 port 2222 timed out\r\n",
       ExitCode::kUnavailable, "connect", "is it up"},
      {"kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 10.0.0.7 port 2222\r\n",
       ExitCode::kUnavailable, "connect", "MaxStartups"},
      {"No ED25519 host key is known for node7 and you have requested strict checking.\r\nHost key verification "
       "failed.\r\n",
       ExitCode::kPermission, "host key", "connect once with 'ssh -p 2222 me@node7'"},
      {"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nOffending ED25519 key in /home/me/.ssh/known_hosts:3\n"
       "Host key verification failed.\r\n",
       ExitCode::kPermission, "host key", "/home/me/.ssh/known_hosts:3"},
      {"me@node7: Permission denied (publickey,password).\r\n", ExitCode::kPermission, "authentication", "ssh-add"},
      {"client_loop: send disconnect: Broken pipe\r\n", ExitCode::kUnavailable, "connection", "Broken pipe"},
      {"", ExitCode::kUnavailable, "connection", "without output"},
  }));
  auto failure = ssh_said(row.words);
  INFO(failure.text);
  CHECK(failure.code == row.code);
  CHECK(failure.phase == row.phase);
  CHECK(says(failure, row.advice));
  CHECK(failure.text.find('\n') == std::string::npos);
}

TEST_CASE("a missing remote program has advice", "[spawn][ssh_explain]") {
  for (auto [words, code] : {std::pair{"bash: line 1: /opt/dslaunch: No such file or directory\n", 127},
                             std::pair{"/opt/dslaunch: Command not found.\n", 1}}) {
    auto failure = ssh_said(words, code);
    CHECK(failure.phase == "start");
    CHECK(says(failure, "there is no /opt/dslaunch on node7"));
    CHECK(says(failure, "--push"));
    CHECK(says(failure, "--remote_path DIR"));
  }
  CHECK(says(ssh_said("bash: /opt/dslaunch: Permission denied\n", 126), "chmod +x"));
  CHECK(says(ssh_said("/opt/dslaunch: error while loading shared libraries: libz.so.1: cannot open\n", 127),
             "libz.so.1"));
  CHECK(says(ssh_said("This account is currently not available.\n", 1), "currently not available"));
}

TEST_CASE("only connections dropped before the handshake are tried again", "[spawn][ssh_explain]") {
  ExitCause failed{.kind = ExitCause::Kind::kExited, .number = 255};
  CHECK(was_dropped(failed, "kex_exchange_identification: read: Connection reset by peer\r\n"));
  CHECK(was_dropped(failed, "kex_exchange_identification: Connection closed by remote host\r\n"));
  CHECK_FALSE(was_dropped(failed, "ssh: connect to host node7 port 22: Connection refused\r\n"));
  // The end of a jump host's connection, which it was never asked for.
  CHECK_FALSE(was_dropped(failed,
                          "Host key verification failed.\r\n"
                          "kex_exchange_identification: Connection closed by remote host\r\n"));
  CHECK_FALSE(was_dropped({}, "kex_exchange_identification: a command that says so\n"));
}

TEST_CASE("the last lines come as one", "[spawn][ssh_explain]") {
  CHECK(last_lines("a\nb\r\n\n  \nc\td", 2) == "b / c d");
  CHECK(last_lines("", 3).empty());
}

TEST_CASE("hosts with the same error share a row", "[spawn][failure_table]") {
  std::vector<std::pair<std::string, LinkFailure>> failures;
  for (int i = 1; i <= 6; ++i) {
    std::string host = "n" + std::to_string(i);
    failures.push_back(
        {host,
         {.phase = "connect", .text = "cannot connect to " + host + " (10.0.0." + std::to_string(i) + ": refused)"}});
  }
  failures.insert(failures.begin() + 1, {"gpu-long-name", {.phase = "host key", .text = "unknown"}});
  CHECK(failure_table(failures) ==
        "host                   phase     error\n"
        "n1, n2, n3 and 3 more  connect   cannot connect to n1 (10.0.0.1: refused)\n"
        "gpu-long-name          host key  unknown\n");
  CHECK(failure_table({}).empty());
}

TEST_CASE("a greeting before the preamble is removed however it is split", "[spawn][greeting]") {
  const std::string mark("\0ready\n", 7);
  const std::string all = "Welcome!\nready\n" + mark.substr(0, 3) + mark + "payload" + mark;
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    Greeting greeting(mark);
    std::string payload = greeting.pass(all.substr(0, cut));
    payload += greeting.pass(all.substr(cut));
    CHECK(payload == "payload" + mark);
    CHECK(greeting.over());
    CHECK(greeting.text() == "Welcome!\nready\n" + mark.substr(0, 3));
  }
  Greeting silent(mark);
  CHECK(silent.pass("only noise\n").empty());
  CHECK_FALSE(silent.over());
  CHECK(silent.text() == "only noise\n");
}
