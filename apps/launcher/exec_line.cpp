#include "exec_line.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/shell_words.hpp"
#include "base/split.hpp"
#include "config/other_tools.hpp"
#include "describe_command.hpp"
#include "launch/commands/migration.hpp"
#include "other_launchers.hpp"

namespace dslaunch::launcher {
namespace {

using Words = std::vector<std::string>;

std::string normal(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

// One command, from left to right.
class Reader {
 public:
  explicit Reader(const Words& words)
      : words_(words), exec_(describe_command("exec").options), run_(describe_command("run").options) {}

  std::optional<ExecLine> read(size_t start) {
    next_ = start;
    while (next_ < words_.size()) {
      const std::string& word = words_[next_];
      if (is_module_option(word)) return with_module();
      if (!word.starts_with("-") || word == "-") return with_program();
      if (!take_option()) return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  using Options = std::vector<command_line::OptionDescription>;

  static const command_line::OptionDescription* option_of(const Options& options, const std::string& name) {
    const auto found = std::find_if(options.begin(), options.end(), [&](const auto& option) {
      return !option.is_positional && std::find(option.names.begin(), option.names.end(), name) != option.names.end();
    });
    return found == options.end() ? nullptr : &*found;
  }

  // mpirun and srun: their short options mean something else.
  bool starts_any() const { return launcher_ != nullptr && launcher_->program.empty(); }

  const command_line::OptionDescription* own_option(const std::string& name) const {
    if (starts_any() && (!name.starts_with("--") || find_renamed_option(name) != nullptr)) return nullptr;
    if (launcher_ != nullptr && launcher_->counts_all && find_renamed_option(name) != nullptr) return nullptr;
    return option_of(exec_, name);
  }

  // -m means a module to launchers of Python's programs.
  bool is_module_option(const std::string& word) const {
    const bool may_be = launcher_ == nullptr || launcher_->program == "python";
    return may_be && (word == "-m" || normal(word) == "--module");
  }

  // Whether the word behind an option that is not of exec is its value.
  bool takes_next(const std::string& name) const {
    if (words_[next_].find('=') != std::string::npos || next_ + 1 == words_.size()) return false;
    const std::string& value = words_[next_ + 1];
    if (value.starts_with("-") || ends_as_program(value) || is_python(value) || is_other_launcher(value)) return false;
    return !is_launcher_switch(name);
  }

  void keep(size_t count) {
    const auto begin = words_.begin() + static_cast<std::ptrdiff_t>(next_);
    line_.options.insert(line_.options.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    next_ += count;
  }

  // An option of exec as it stands. False: it lacks its value.
  bool keep_own(const command_line::OptionDescription& option) {
    const bool is_joined = words_[next_].find('=') != std::string::npos;
    const size_t count = option.value.empty() || is_joined ? 1 : 2;
    if (next_ + count > words_.size()) return false;
    keep(count);
    return true;
  }

  bool take_option() {
    const std::string name = normal(words_[next_]);
    if (const auto* own = own_option(name)) return keep_own(*own);
    const std::string value = value_of_next(name);
    if (name == "--use_env" || name == "--no_local_rank") has_local_rank_ = true;
    if (name == "--no_python") python_ = false;
    if (name == "--rdzv_endpoint" && !value.empty()) return take_endpoint(value);
    if (starts_any() && name == "-x") return take_variable(value);
    if (const auto* renamed = find_renamed_option(name)) return take_renamed(*renamed, value);
    if (name.starts_with("--fsdp_")) return take_fsdp(name, value);
    return leave_out(name, value);
  }

  // accelerate sets a variable for each.
  bool take_fsdp(const std::string& name, const std::string& value) {
    std::string variable = name.substr(2);
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    set_variable(fmt::format("{}={}", variable, value.empty() ? "true" : value));
    return true;
  }

  // The value of the option at next_, which then is the word behind both.
  std::string value_of_next(const std::string& name) {
    const std::string& word = words_[next_];
    const size_t equals = word.find('=');
    const bool takes = takes_next(name);
    next_ += takes ? 2 : 1;
    if (equals != word.npos) return word.substr(equals + 1);
    return takes ? words_[next_ - 1] : "";
  }

  bool take_endpoint(const std::string& value) {
    const size_t colon = value.rfind(':');
    add({"--master_addr", value.substr(0, colon)});
    if (colon != value.npos) add({"--master_port", value.substr(colon + 1)});
    return true;
  }

  bool take_variable(const std::string& value) {
    if (value.find('=') != value.npos) add({"--env", value});
    return true;
  }

  bool take_renamed(const RenamedOption& row, const std::string& value) {
    const std::string here(row.here);
    if (!here.starts_with("-")) {
      set_variable(here.find('=') == here.npos ? fmt::format("{}={}", here, value) : here);
      if (row.name == "--deepspeed_config_file") set_variable("ACCELERATE_USE_DEEPSPEED=true");
    } else if (here.find(' ') != here.npos) {
      add(split(here, ' '));
    } else if (here == "--num_gpus" && value.find(',') == value.npos) {
      num_ranks_ = value;
    } else if (here == "--include") {
      add({"--include", "localhost:" + value});
    } else {
      add({here, value});
    }
    return true;
  }

  void set_variable(const std::string& setting) {
    if (std::find(line_.options.begin(), line_.options.end(), setting) == line_.options.end()) add({"--env", setting});
  }

  void add(const Words& words) { line_.options.insert(line_.options.end(), words.begin(), words.end()); }

  // What does not change which program starts where. False: no launcher has such an option.
  bool leave_out(const std::string& name, const std::string& value) {
    if (launch::is_not_needed(name) || is_default(name)) return true;
    if (const auto reason = reason_against(name); !reason.empty()) {
      line_.left_out.push_back(fmt::format("{} ({})", name, reason));
      return true;
    }
    const auto* other = name.starts_with("--") ? config::find_other_name("", name.substr(2)) : nullptr;
    if (other != nullptr && take_other_name(*other, value)) return true;
    const auto answer = launch::migration_answer(name);
    if (!answer && other == nullptr && launcher_ == nullptr && option_of(run_, name) == nullptr &&
        !name.ends_with("_config"))
      return false;
    std::string reason = "a program takes it behind its name";
    if (other != nullptr && !other->remark.empty()) reason = other->remark;
    if (const size_t colon = answer ? answer->find(": ") : 0; answer)
      reason = colon == answer->npos ? answer->substr(answer->find(" called ") + 1) : answer->substr(colon + 2);
    const bool has_reason = answer || other != nullptr || launcher_ == nullptr;
    line_.left_out.push_back(has_reason ? fmt::format("{} ({})", name, reason) : name);
    return true;
  }

  // Honoured without an option that help shows: it asks for what is always so.
  static bool is_default(const std::string& name) {
    const auto& flags = launch::migrated_flags();
    return std::any_of(flags.begin(), flags.end(), [&](const auto& flag) {
      return name == flag.flag && flag.disposition == launch::Disposition::kHonoured && !name.ends_with("_config");
    });
  }

  // Another name of an option of exec, or one that is not needed.
  bool take_other_name(const config::OtherName& other, const std::string& value) {
    if (other.remark.starts_with("leave it out")) return true;
    if (other.option.empty() || value.empty() || option_of(exec_, std::string(other.option)) == nullptr) return false;
    add({std::string(other.option), value});
    return true;
  }

  std::optional<ExecLine> with_module() {
    const std::string& word = words_[next_];
    const size_t equals = word.find('=');
    const size_t at = equals == word.npos ? next_ + 1 : next_;
    if (at == words_.size()) return std::nullopt;
    const std::string module = equals == word.npos ? words_[at] : word.substr(equals + 1);
    if (const auto* launcher = find_module_launcher(module)) return with_launcher(*launcher, at + 1);
    line_.program = {"python", "-m", module};
    return end(at + 1);
  }

  std::optional<ExecLine> with_launcher(const Launcher& launcher, size_t start) {
    if (!launcher.behind.empty()) {
      if (start == words_.size() || words_[start] != launcher.behind) return std::nullopt;
      start += 1;
    }
    if (launcher_ != nullptr) forget_counts();
    launcher_ = &launcher;
    return read(start);
  }

  std::optional<ExecLine> with_program() {
    const std::string& word = words_[next_];
    const bool is_own_word = launcher_ != nullptr && !launcher_->program.empty() && launcher_->program != "python";
    if (!is_own_word) {
      if (const auto* launcher = find_launcher(word); launcher != nullptr && !ends_as_program(word)) {
        if (const auto line = with_launcher(*launcher, next_ + 1)) return line;
      }
      if (is_python(word) && next_ + 2 < words_.size() && words_[next_ + 1] == "-m") {
        if (const auto* launcher = find_module_launcher(words_[next_ + 2])) return with_launcher(*launcher, next_ + 3);
      }
    }
    start_program(word);
    line_.file = word;
    return end(next_);
  }

  void start_program(const std::string& word) {
    const std::string ending = std::filesystem::path(word).extension().string();
    if (launcher_ != nullptr && (launcher_->program != "python" || python_)) {
      line_.program = launcher_->program.empty() ? Words{} : split(std::string(launcher_->program), ' ');
    }
    if (launcher_ != nullptr && !launcher_->program.empty()) return;
    if (ending == ".py" || ending == ".pyc") line_.program = {"python"};
    if (ending == ".sh" || ending == ".bash") line_.program = {"sh"};
  }

  // srun starts one torchrun on each host: the ranks are those of torchrun.
  void forget_counts() {
    num_ranks_.clear();
    const auto count = std::find(line_.options.begin(), line_.options.end(), "--nproc_per_node");
    if (count != line_.options.end()) line_.options.erase(count, count + 2);
  }

  // The number of all ranks becomes that of each host.
  void finish_counts() {
    if (num_ranks_.empty()) return;
    const std::string count = std::exchange(num_ranks_, "");
    const auto has = [&](std::string_view name) {
      return std::any_of(line_.options.begin(), line_.options.end(),
                         [&](const auto& word) { return normal(word) == name; });
    };
    if (has("--nproc_per_node")) return;
    const auto nodes = std::find(line_.options.begin(), line_.options.end(), "--num_nodes");
    const auto all = parse_int<int>(count);
    if (nodes == line_.options.end() || !all) {
      if (!has("--hostfile") && !has("--include")) add({"--num_gpus", count});
      return;
    }
    const auto hosts = parse_int<int>(nodes[1]);
    if (hosts && *hosts > 0 && *all % *hosts == 0 && *all >= *hosts) add({"--num_gpus", std::to_string(*all / *hosts)});
  }

  std::optional<ExecLine> end(size_t arguments) {
    finish_counts();
    // A node that is started by hand.
    const auto is_rank = [](const auto& word) { return normal(word) == "--node_rank"; };
    const auto is_by_hand = [](const auto& word) { return normal(word) == "--no_ssh"; };
    if (std::any_of(line_.options.begin(), line_.options.end(), is_rank) &&
        std::none_of(line_.options.begin(), line_.options.end(), is_by_hand)) {
      std::replace(line_.options.begin(), line_.options.end(), std::string("--num_nodes"), std::string("--nnodes"));
    }
    if (launcher_ != nullptr && launcher_->adds_local_rank && !has_local_rank_ && python_)
      line_.options.emplace_back("--add_local_rank");
    line_.program.insert(line_.program.end(), words_.begin() + static_cast<std::ptrdiff_t>(arguments), words_.end());
    return line_;
  }

  const Words& words_;
  const Options exec_, run_;
  const Launcher* launcher_ = nullptr;  // null: the options were given to dslaunch
  size_t next_ = 0;
  bool python_ = true, has_local_rank_ = false;
  std::string num_ranks_;
  ExecLine line_;
};

}  // namespace

std::string ExecLine::text() const {
  Words line{"dslaunch", "exec"};
  line.insert(line.end(), options.begin(), options.end());
  line.emplace_back("--");
  line.insert(line.end(), program.begin(), program.end());
  std::string out = fmt::format("'{}'?", shell_words(line));
  if (!left_out.empty()) out += fmt::format(" Left out: {}", fmt::join(left_out, ", "));
  return out;
}

bool may_be_program(const std::string& word) {
  return ends_as_program(word) || is_other_launcher(word) || word == "-m" || normal(word) == "--module" ||
         normal(word) == "--no_python";
}

std::optional<ExecLine> exec_line(const Words& words) {
  const auto is_word = [](const std::string& word) { return !word.starts_with("-"); };
  if (std::none_of(words.begin(), words.end(), is_word)) return std::nullopt;
  return Reader(words).read(0);
}

}  // namespace dslaunch::launcher
