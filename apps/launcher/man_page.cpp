// The manual pages.
#include <algorithm>

#include "base/format.hpp"
#include "base/split.hpp"
#include "commands.hpp"
#include "describe_command.hpp"

namespace dslaunch::launcher {
namespace {

using command_line::OptionDescription;

// Text for man(7): no escapes, and no line that would be a request.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool begins_line = out.empty() || out.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string section(const std::string& title) {
  std::string upper = title;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return ".SH " + escaped(upper) + "\n";
}

// As it is, in lines of its own.
std::string verbatim(const std::string& text) {
  return text.empty() ? "" : ".nf\n" + escaped(text) + (text.ends_with('\n') ? "" : "\n") + ".fi\n";
}

std::string tagged(const OptionDescription& option) {
  std::vector<std::string> names;
  for (const auto& name : option.names) names.push_back("\\fB" + escaped(name) + "\\fR");
  std::string tag = fmt::format("{}", fmt::join(names, ", "));
  if (!option.value.empty() && !option.is_positional) tag += " \\fI" + escaped(option.value) + "\\fR";
  return ".TP\n" + tag + "\n" + escaped(option.help) + "\n";
}

std::string arguments_and_options(const std::vector<OptionDescription>& options) {
  std::string arguments, out;
  std::vector<std::string> groups;
  for (const auto& option : options) {
    if (option.is_positional) {
      arguments += tagged(option);
    } else if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) {
      groups.push_back(option.group);
    }
  }
  if (!arguments.empty()) out += section("Arguments") + arguments;
  for (const auto& group : groups) {
    out += section(group == "Options" ? group : "Options: " + group);
    for (const auto& option : options) {
      if (!option.is_positional && option.group == group) out += tagged(option);
    }
  }
  return out;
}

std::string see_also(const std::string& own) {
  std::vector<std::string> pages{"\\fBdslaunch\\fR(1)"};
  for (const auto& name : commands_with_options()) {
    if (name != own && name == listed_name(name) && name != "run")
      pages.push_back("\\fBdslaunch\\-" + escaped(name) + "\\fR(1)");
  }
  if (own.empty()) pages.erase(pages.begin());
  return section("See also") + fmt::format("{}\n", fmt::join(pages, ",\n"));
}

}  // namespace

std::string man_page(const std::string& alias) {
  const std::string command = alias.empty() ? "run" : listed_name(alias);
  const bool is_overview = command == "run";
  const auto described = describe_command(command);
  const std::string name = is_overview ? "dslaunch" : "dslaunch-" + command;
  const std::string about =
      is_overview ? "train TorchScript models on many devices, and launch other programs" : about_command(command);
  std::string out = fmt::format(".TH {} 1 \"\" \"dslaunch {}\" \"dslaunch\"\n", escaped(name), DSL_VERSION);
  out += section("Name") + escaped(name) + " \\- " + escaped(about) + "\n";
  constexpr std::string_view kUsage = "usage: ";
  const std::string usage =
      described.usage.starts_with(kUsage) ? described.usage.substr(kUsage.size()) : described.usage;
  out += section("Synopsis") + verbatim(is_overview ? "dslaunch [run] [options] MODEL.pt [--config FILE]" : usage);
  out += section(is_overview ? "Examples and commands" : "Examples") + verbatim(described.examples);
  out += arguments_and_options(described.options);
  out +=
      section("Exit status") +
      "0: all ranks ended with it; 64: the command line; 65: the input; 66: a file is missing; 69: something is not\n"
      "available; 128+N: signal N ended the first rank that failed. All others: docs/exit_codes.md.\n";
  return out + see_also(is_overview ? "" : command);
}

}  // namespace dslaunch::launcher
