#include "launch/plan/env_file.hpp"

#include <catch2/catch.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <random>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::launch;
using test::expect_error;

namespace {

using Variables = std::map<std::string, std::string>;

Variables last_of_each(const Assignments& assignments) {
  Variables variables;
  for (const auto& [name, value] : assignments) variables[name] = value;
  return variables;
}

Variables read(std::string_view text) {
  return last_of_each(parse_env_file(text, "F"));
}

// What a POSIX shell makes of the same file: the environment after ". file", zero bytes between the entries.
Variables as_a_shell_reads(const std::string& path) {
  std::string command = "env -i sh -c 'set -a; . " + path + "; exec env -0'";
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  REQUIRE(pipe);
  std::string output;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe.get())) > 0;) output.append(buffer, got);
  Variables variables;
  for (size_t begin = 0; begin < output.size();) {
    size_t end = output.find('\0', begin);
    std::string entry = output.substr(begin, end - begin);
    variables[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    begin = end + 1;
  }
  for (const char* own : {"PWD", "SHLVL", "_", "OLDPWD"}) variables.erase(own);
  return variables;
}

}  // namespace

TEST_CASE("reads names and values, ignoring blanks and comments", "[launch][env_file]") {
  CHECK(read("").empty());
  CHECK(read("\n\n  \t\n# only = a comment\n   # another\n").empty());
  CHECK(read("A=1\n\n# c\nB=two words  \n  C = 3\t\n") == Variables{{"A", "1"}, {"B", "two words"}, {"C", "3"}});
  CHECK(read("export A=1\nexport\tB = 2\nexport=3\nexport =4\nexported=5") ==
        Variables{{"A", "1"}, {"B", "2"}, {"export", "4"}, {"exported", "5"}});
  CHECK(read("A=1\nA=2") == Variables{{"A", "2"}});
  CHECK(read("my.name-x_1=v") == Variables{{"my.name-x_1", "v"}});
}

TEST_CASE("a value may be empty or hold '=' and '#'", "[launch][env_file]") {
  CHECK(read("A=\nB= \nC= # nothing\nD=''\nE=\"\"") ==
        Variables{{"A", ""}, {"B", ""}, {"C", ""}, {"D", ""}, {"E", ""}});
  CHECK(read("A=b=c=d\nU=http://h/p#part # real comment\nH=#no\nI=x#y") ==
        Variables{{"A", "b=c=d"}, {"U", "http://h/p#part"}, {"H", "#no"}, {"I", "x#y"}});
}

TEST_CASE("quotes keep their contents", "[launch][env_file]") {
  CHECK(read(R"(A='  $x `y` "z" \n # no comment '  # comment)") ==
        Variables{{"A", R"(  $x `y` "z" \n # no comment )"}});
  CHECK(read(R"(A="a\nb\tc\"d\\e\'f\$g\q $h"#comment)") == Variables{{"A", "a\nb\tc\"d\\e'f\\$g\\q $h"}});
  CHECK(read("A=it's fine \"so\"") == Variables{{"A", "it's fine \"so\""}});
  CHECK(read(R"(A=\n$HOME)") == Variables{{"A", "\\n$HOME"}});
}

TEST_CASE("accepts Windows line endings, a byte order mark and a missing last newline", "[launch][env_file]") {
  CHECK(read("\xEF\xBB\xBF"
             "A=1\r\n\r\nB='x y'\r\n# c\r\nC=3") == Variables{{"A", "1"}, {"B", "x y"}, {"C", "3"}});
}

TEST_CASE("reports all errors at once, with line and column", "[launch][env_file]") {
  expect_error(ExitCode::kBadInput,
               {"my.env:1:5: '=' is missing; write LONE=VALUE", "my.env:3:3: the quote \" is not closed",
                "my.env:4:6: unexpected text after the value, which ends with the quote that began in column 3",
                "my.env:5:1: expected a variable name", "my.env:6:2: '$'", "my.env:7:3: the quote '",
                "my.env:10:8: expected a variable name"},
               [] {
                 parse_env_file("LONE\nGOOD=1\nB=\"open\nC='a' b\n1=2\nD$=3\nE='\nexport =\nexport = \nexport 7=1\n",
                                "my.env");
               });
}

TEST_CASE("reports the first of very many errors", "[launch][env_file]") {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "=\n";
  expect_error(ExitCode::kBadInput, {"F:1:1: ", "F:10:1: ", "\nF: the lines after line 10 were not read"},
               [&] { parse_env_file(text, "F"); });
}

TEST_CASE("rejects a zero byte", "[launch][env_file]") {
  expect_error(ExitCode::kBadInput, {"F:2:4: a zero byte"},
               [] { parse_env_file(std::string_view("A=1\nB=x\0y\n", 10), "F"); });
}

TEST_CASE("DeepSpeed's file is looked for at home, then in the current folder", "[launch][env_file]") {
  test::TempDir home, here;
  using Paths = std::vector<std::string>;
  CHECK(default_env_files(home.path(), here.path(), {}).empty());
  test::write_file(here / ".deepspeed_env", "A=1\n");
  CHECK(default_env_files(home.path(), here.path(), {}) == Paths{here / ".deepspeed_env"});
  test::write_file(home / ".deepspeed_env", "A=2\n");
  CHECK(default_env_files(home.path(), here.path(), {}) == Paths{home / ".deepspeed_env", here / ".deepspeed_env"});
  CHECK(default_env_files(home.path(), home.path(), {}) == Paths{home / ".deepspeed_env"});
  CHECK(default_env_files("", here.path(), {}) == Paths{here / ".deepspeed_env"});
}

TEST_CASE("DS_ENV_FILE gives the file another name, which must exist", "[launch][env_file]") {
  test::TempDir home, here;
  using Paths = std::vector<std::string>;
  test::write_file(home / "mine.env", "A=1\n");
  CHECK(default_env_files(home.path(), here.path(), "mine.env") == Paths{home / "mine.env"});
  CHECK(default_env_files(here.path(), here.path(), home / "mine.env") == Paths{home / "mine.env"});
  expect_error(ExitCode::kNoInput, {"DS_ENV_FILE=other.env"},
               [&] { default_env_files(home.path(), here.path(), "other.env"); });
}

TEST_CASE("agrees with a shell where both accept the text", "[launch][env_file]") {
  test::TempDir dir;
  std::mt19937 random(3);
  auto below = [&](size_t n) { return random() % n; };
  // Nothing here means anything to a shell outside of quotes, or between its own quotes.
  const std::string plain = "abzAZ09_%+:,./-@=#", quoted = plain + " \t'{}()[]*?;|&<>!~^",
                    single = plain + " \t\"\\$`;";
  auto word = [&](const std::string& letters) {
    std::string text;
    for (size_t left = below(12); left > 0; --left) text += letters[below(letters.size())];
    return text;
  };
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (int line = 0; line < 12; ++line) {
      std::string name = "V" + std::to_string(below(6));
      std::string value = below(3) == 0   ? word(plain)
                          : below(2) == 0 ? "\"" + word(quoted) + (below(3) == 0 ? "\\\\\\\"" : "") + "\""
                                          : "'" + word(single) + "'";
      if (value.starts_with('~')) continue;
      std::string before = below(3) == 0 ? "export " : below(3) == 0 ? "  " : "";
      text += before + name + "=" + value + (below(3) == 0 ? " # it's a comment" : "") + "\n";
      if (below(4) == 0) text += below(2) == 0 ? "\n" : "\t# A=b \" '\n";
    }
    INFO(text);
    test::write_file(dir / "f", text);
    auto expected = as_a_shell_reads(dir / "f");
    CHECK(read(text) == expected);
  }
}

TEST_CASE("a quoted value survives with any bytes", "[launch][env_file]") {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string value, written;
    for (size_t left = random() % 20; left > 0; --left) value += static_cast<char>(1 + random() % 255);
    for (char c : value) {
      if (c == '\n') {
        written += "\\n";
      } else if (c == '\r') {
        written += "\\r";
      } else {
        if (c == '"' || c == '\\') written += '\\';
        written += c;
      }
    }
    CHECK(read("A=\"" + written + "\"\nB=1") == Variables{{"A", value}, {"B", "1"}});
  }
}
