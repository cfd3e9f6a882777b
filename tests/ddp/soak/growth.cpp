#include "ddp/soak/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace lockstep::soak {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of more rounds, evenly spread ones: the number of pairs is the square.
constexpr std::size_t kMostRounds = 1000;

double median_slope(const std::vector<double>& values) {
  const std::size_t stride = values.size() / kMostRounds + 1;
  std::vector<double> slopes;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    for (std::size_t j = i + stride; j < values.size(); j += stride) {
      slopes.push_back((values[j] - values[i]) / static_cast<double>(j - i));
    }
  }
  return median(std::move(slopes));
}

template <typename RegistrationClient>
void for_each_growth(const std::vector<std::vector<Usage>>& rounds, const RegistrationClient& visit) {
  for (std::size_t rank = 0; rank < rounds.size(); ++rank) {
    for (std::size_t column = 0; column < kColumns.size(); ++column) {
      visit(rank, kColumns[column], growth_of(rounds[rank], column));
    }
  }
}

}  // namespace

Growth growth_of(const std::vector<Usage>& rounds, std::size_t column) {
  if (rounds.size() < 4) throw std::invalid_argument("growth_of: fewer than 4 rounds");
  std::vector<double> values;
  for (std::size_t i = rounds.size() / 4; i < rounds.size(); ++i) {
    values.push_back(static_cast<double>(rounds[i][column]));
  }
  const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
  const Column& limits = kColumns[column];
  Growth growth;
  growth.begin = median({values.begin(), values.begin() + third});
  growth.end = median({values.end() - third, values.end()});
  growth.per_round = median_slope(values);
  growth.limit = std::max(limits.per_round, limits.in_all / static_cast<double>(values.size()));
  growth.grows = growth.per_round > growth.limit || (growth.limit == 0 && growth.end > growth.begin);
  return growth;
}

std::string growth_table(const std::vector<std::vector<Usage>>& rounds) {
  std::string text = fmt::format("{:>4}  {:<22}{:>12}{:>12}{:>12}{:>12}\n", "rank", "", "after start", "at the end",
                                 "per round", "limit");
  for_each_growth(rounds, [&text](std::size_t rank, const Column& column, const Growth& growth) {
    const std::string name = *column.unit != '\0' ? fmt::format("{}, {}", column.name, column.unit) : column.name;
    text += fmt::format("{:>4}  {:<22}{:>12.0f}{:>12.0f}{:>12.3f}{:>12.3f}{}\n", rank, name, growth.begin, growth.end,
                        growth.per_round, growth.limit, growth.grows ? "  GROWS" : "");
  });
  return text;
}

std::string growth_report(const std::vector<std::vector<Usage>>& rounds) {
  std::string text;
  for_each_growth(rounds, [&text](std::size_t rank, const Column& column, const Growth& growth) {
    if (!growth.grows) return;
    text += fmt::format("rank {}: {} grew from {:.0f} to {:.0f}, by {:.3f} {} per round; {:.3f} is allowed\n", rank,
                        column.name, growth.begin, growth.end, growth.per_round, column.unit, growth.limit);
  });
  return text;
}

}  // namespace lockstep::soak
