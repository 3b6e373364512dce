// What shells offer behind an unfinished command line, against the tables and the help.
#include "apps/launcher/completion.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>

#include "apps/launcher/commands.hpp"
#include "apps/launcher/describe_command.hpp"
#include "config/key_table.hpp"
#include "launch/records/job_dirs.hpp"
#include "support/captured_output.hpp"
#include "support/set_env.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using Texts = std::vector<std::string>;

namespace {

Texts complete(const std::string& line) {
  Texts texts;
  for (const auto& candidate : launcher::complete(line)) texts.push_back(candidate.text);
  return texts;
}

bool offers(const std::string& line, const std::string& text) {
  const Texts found = complete(line);
  return std::find(found.begin(), found.end(), text) != found.end();
}

std::string help_of(const std::string& command) {
  const test::CapturedOutput out(1);
  launcher::dispatch(launcher::listed_name(command) == "run" ? Texts{"help", "all"} : Texts{command, "--help"});
  return out.text();
}

}  // namespace

TEST_CASE("an unfinished command line is completed from the tables", "[launcher][completion]") {
  struct Row {
    std::string line;
    Texts texts;
  };
  for (const Row& row : std::vector<Row>{
           {"dslaunch lo", {"logs"}},
           {"dslaunch --hostf", {"--hostfile"}},
           {"dslaunch run --no-s", {"--no-ssh"}},
           {"dslaunch run --no_s", {"--no_ssh"}},
           {"/opt/bin/dslaunch exec --max_r", {"--max_restarts"}},
           {"dslaunch --device c", {"cpu", "cuda"}},
           {"dslaunch --device=c", {"--device=cpu", "--device=cuda"}},
           {"dslaunch m.pt --resume ", {"auto", "best"}},
           {"dslaunch infer m.pt --dtype b", {"bf16"}},
           {"dslaunch config ", {"check", "explain"}},
           {"dslaunch bench s", {"step"}},
           {"dslaunch completion f", {"fish"}},
           {"dslaunch help devi", {"devices"}},
           {"dslaunch help consol", {"consolidate"}},
           {"dslaunch m.pt --set zero_optimization.over", {"zero_optimization.overlap_comm="}},
           {"dslaunch resume a --set gradient_cl", {"gradient_clipping="}},
           {"dslaunch m.pt --set bf16.", {"bf16.enabled="}},
           {"dslaunch m.pt --set bf16.enabled=", {"bf16.enabled=true", "bf16.enabled=false", "bf16.enabled=auto"}},
           {"dslaunch m.pt --set 'optimizer.type=Adag", {"optimizer.type=Adagrad"}},
           {"dslaunch m.pt --set=bf16.enabled=t", {"--set=bf16.enabled=true"}},
           {"dslaunch config explain --key pipeline.stag", {"pipeline.stages"}},
           // The shell completes files.
           {"dslaunch run ", {}},
           {"dslaunch --config d", {}},
           {"dslaunch m.pt --set train.steps=", {}},
           {"dslaunch exec -- python --de", {}},
           {"dslaunch export --h", {}},
           {"dslaunch no_command --dev", {"--device"}},
           {"", {}},
       }) {
    CAPTURE(row.line);
    CHECK(complete(row.line) == row.texts);
  }
}

TEST_CASE("jobs on record are offered by name and id where a job is expected", "[launcher][completion]") {
  const test::TempDir dir;
  const test::SetEnv state("XDG_STATE_HOME", dir.path());
  launch::JobRecord record;
  record.job_id = "20261128-200708-23765-00a671fc";
  record.name = "bert";
  record.state = "done";
  record.supervisor = {"host", "boot", 1, 1, 0};
  const auto job = launch::make_job_dir(launch::jobs_root(), record.job_id);
  std::ofstream(job.record_file()) << launch::record_to_json(record);
  CHECK(complete("dslaunch logs ") == Texts{"last", "bert", record.job_id});
  CHECK(complete("dslaunch stop be") == Texts{"bert"});
  CHECK(complete("dslaunch resume 2026") == Texts{record.job_id});
  CHECK(complete("dslaunch report la") == Texts{"last"});
}

TEST_CASE("every command and every option that the help shows is offered", "[launcher][completion]") {
  for (const auto& command : launcher::command_names()) CHECK(offers("dslaunch " + command, command));
  for (const auto& command : launcher::commands_with_options()) {
    CAPTURE(command);
    const std::string text = help_of(command);
    const auto described = launcher::describe_command(command);
    CHECK(text.starts_with(described.usage));
    for (const auto& option : described.options) {
      if (option.is_positional) continue;
      CHECK((command == "resume" || text.find(option.names[0]) != text.npos));
      CHECK(offers("dslaunch " + command + " " + option.names[0], option.names[0]));
    }
  }
}

TEST_CASE("every supported key is reached section by section, with the values that it names",
          "[launcher][completion]") {
  Texts keys;
  const std::function<void(const std::string&)> visit = [&](const std::string& typed) {
    for (const auto& text : complete("dslaunch --set " + typed)) {
      text.ends_with('.') ? visit(text) : keys.push_back(text.substr(0, text.size() - 1));
    }
  };
  visit("");
  for (const auto* key : config::all_keys()) {
    const bool is_value = key->kind != config::Kind::kSection && key->kind != config::Kind::kNamed;
    if (!is_value || key->status != config::Status::kSupported || key->path.find('*') != key->path.npos) continue;
    const std::string path(key->path);
    CAPTURE(path);
    CHECK(std::count(keys.begin(), keys.end(), path) == 1);
    if (key->kind == config::Kind::kBool || key->kind == config::Kind::kEnum)
      CHECK_FALSE(complete("dslaunch --set " + path + "=").empty());
  }
}

TEST_CASE("a manual page has every option of its command", "[launcher][man]") {
  for (const auto& command : launcher::commands_with_options()) {
    CAPTURE(command);
    const std::string page = launcher::man_page(command);
    CHECK(page.starts_with(".TH dslaunch"));
    for (const auto& option : launcher::describe_command(command).options) {
      std::string name;
      for (const char c : option.names[0]) name += c == '-' ? std::string("\\-") : std::string(1, c);
      CHECK(page.find("\\fB" + name + "\\fR") != page.npos);
    }
  }
  const std::string overview = launcher::man_page("");
  CHECK(overview.find("dslaunch [run] [options] MODEL.pt") != overview.npos);
  CHECK(overview.find("\\fBdslaunch\\-logs\\fR(1)") != overview.npos);
  CHECK(launcher::man_page("train") == overview);
  CHECK(launcher::man_page("list") == launcher::man_page("jobs"));
}
