#include "hostfile/environment.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"

namespace dslaunch::hostfile {

std::optional<std::string> text_of(const Environment& environment, const std::string& name) {
  auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int> number_of(const Environment& environment, const std::string& name, int lowest, int highest) {
  auto text = text_of(environment, name);
  if (!text) return std::nullopt;
  const auto value = parse_int(*text, lowest, highest);
  if (!value) {
    contradiction(fmt::format("{}='{}' in the environment is not a whole number from {} to {}", name, printable(*text),
                              lowest, highest));
  }
  return value;
}

void contradiction(const std::string& message) {
  throw UserError(ExitCode::kContradiction, message);
}

std::optional<NamedNumber> first_number(const Environment& environment, std::initializer_list<const char*> names,
                                        int lowest, int highest) {
  for (const char* name : names) {
    if (auto value = number_of(environment, name, lowest, highest)) return NamedNumber{name, *value};
  }
  return std::nullopt;
}

}  // namespace dslaunch::hostfile
