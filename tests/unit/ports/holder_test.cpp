#include "ports/holder.hpp"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "ports/process_info.hpp"
#include "unit/ports/holder_process.hpp"

using namespace dslaunch;
using namespace dslaunch::ports;
using Catch::Contains;

TEST_CASE("a listening process is described by pid, user, command, age and job", "[ports][holder]") {
  // exec gives the process an environment and a command line of its own.
  uint16_t port = 0;
  UniqueFd listener = listen_on("127.0.0.1", &port);
  int ready[2], hold[2];
  REQUIRE((pipe(ready) == 0 && pipe(hold) == 0));
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ready[1], STDOUT_FILENO);
    dup2(hold[0], STDIN_FILENO);
    setenv("DSLAUNCH_JOB_ID", "job-7f3a", 1);
    execlp("sh", "sh", "-c", "echo up; read until_told", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ready[1]);
  char byte;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(hold[0]);
  listener.reset();  // the child alone holds it now

  auto holders = find_holders(port);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(hold[1]);
  REQUIRE(holders.size() == 1);
  CHECK(holders[0].pid == child);
  CHECK(holders[0].uid == getuid());
  CHECK(holders[0].user == user_name(getuid()));
  CHECK_THAT(holders[0].command, Contains("read until_told"));
  CHECK(holders[0].job_id == "job-7f3a");
  REQUIRE(holders[0].age);
  CHECK(holders[0].age->count() < 60);
  CHECK(holders[0].address == "127.0.0.1");
  CHECK(holders[0].listening);
  CHECK_THAT(describe_busy(port, holders),
             Contains("port " + std::to_string(port) + " is held by pid " + std::to_string(child) + " (user ") &&
                 Contains("read until_told") && Contains(" s old") && Contains("job job-7f3a"));
}

TEST_CASE("children that inherited the socket are holders too", "[ports][holder]") {
  uint16_t port = 0;
  UniqueFd listener = listen_on("::1", &port);
  if (!listener.valid()) listener = listen_on("127.0.0.1", &port);
  HolderProcess child([&] { return port; });
  auto holders = find_holders(port);
  REQUIRE(holders.size() == 2);
  CHECK(std::set<pid_t>{holders[0].pid, holders[1].pid} == std::set<pid_t>{getpid(), child.pid()});
}

TEST_CASE("a process that listens on two addresses is one holder", "[ports][holder]") {
  uint16_t port = 0;
  UniqueFd first = listen_on("127.0.0.1", &port);
  sockaddr_in second_address{};
  second_address.sin_family = AF_INET;
  second_address.sin_port = htons(port);
  inet_pton(AF_INET, "127.0.0.2", &second_address.sin_addr);
  UniqueFd second(socket(AF_INET, SOCK_STREAM, 0));
  REQUIRE(bind(second.get(), reinterpret_cast<sockaddr*>(&second_address), sizeof(second_address)) == 0);
  REQUIRE(listen(second.get(), 1) == 0);
  CHECK(find_holders(port).size() == 1);
}

TEST_CASE("the local end of a connection is a holder when nothing listens", "[ports][holder]") {
  uint16_t port = 0;
  UniqueFd listener = listen_on("127.0.0.1", &port);
  UniqueFd client = connect_to("127.0.0.1", port);
  REQUIRE(client.valid());
  sockaddr_in own{};
  socklen_t length = sizeof(own);
  REQUIRE(getsockname(client.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0);
  auto holders = find_holders(ntohs(own.sin_port));
  REQUIRE(holders.size() == 1);
  CHECK(holders[0].pid == getpid());
  CHECK_FALSE(holders[0].listening);
  CHECK_THAT(describe_busy(1, holders), Contains("connected, not listening"));
}

TEST_CASE("a holder that cannot be inspected is described by its user", "[ports][holder]") {
  uint16_t port = 0;
  HolderProcess hidden([] {
    uint16_t chosen = 0;
    listen_on("127.0.0.1", &chosen).release();
    prctl(PR_SET_DUMPABLE, 0);  // hides the files of the process even from its own user
    return chosen;
  });
  port = hidden.port();
  std::string text = output_of_ordinary_user([port] {
    auto holders = find_holders(port);
    if (holders.size() != 1) return std::to_string(holders.size()) + " holders";
    return std::to_string(holders[0].pid) + " " + describe_busy(port, holders);
  });
  CHECK(text == "-1 port " + std::to_string(port) + " is held by a process of user " + user_name(getuid()) +
                    " that cannot be inspected");
}

TEST_CASE("a free port has no holder", "[ports][holder]") {
  uint16_t port = 0;
  listen_on("127.0.0.1", &port).reset();
  CHECK(find_holders(port).empty());
  CHECK_THAT(describe_busy(port, {}), Contains("its holder was not found"));
}

TEST_CASE("describes ages, states and many holders", "[ports][holder]") {
  Holder holder;
  holder.pid = 123;
  holder.user = "bob";
  holder.command = "python train.py";
  auto text = [&](std::chrono::seconds age) {
    holder.age = age;
    return describe_busy(29500, {holder});
  };
  CHECK(text(std::chrono::hours(3)) == "port 29500 is held by pid 123 (user bob, python train.py, 3 h old)");
  CHECK(text(std::chrono::seconds(59)) == "port 29500 is held by pid 123 (user bob, python train.py, 59 s old)");
  CHECK(text(std::chrono::minutes(59)) == "port 29500 is held by pid 123 (user bob, python train.py, 59 min old)");
  CHECK(text(std::chrono::hours(49)) == "port 29500 is held by pid 123 (user bob, python train.py, 2 days old)");
  holder.state = 'T';
  CHECK_THAT(text(std::chrono::hours(3)), Contains("3 h old, stopped)"));
  holder.state = 'D';
  CHECK_THAT(text(std::chrono::hours(3)), Contains("uninterruptible"));
  CHECK_THAT(describe_busy(1, std::vector<Holder>(5, holder)), Contains(" and 2 more"));
}
