//! Closed word lists of the sample world, one list for each type of value.
//!
//! The lists do not overlap, and no text template uses a listed word: so the type of a value is known by the value
//! alone, and a reader that knows what type a question asks for can tell which words of a text are candidates.

/// A word list.
pub type Words = &'static [&'static str];

/// First names of users and friends.
pub const NAMES: Words = &[
    "Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jonas", "Karen", "Leo", "Maria",
    "Noah", "Olga", "Paul", "Rita", "Simon", "Tina", "Victor", "Wendy", "Yusuf", "Zoe", "Adam", "Bella", "Chris",
    "Diana", "Erik", "Fiona", "George",
];
/// Names of dogs.
pub const DOGS: Words = &[
    "Biscuit", "Rex", "Luna", "Pepper", "Ziggy", "Bruno", "Daisy", "Rocky", "Coco", "Otis", "Pixel", "Nacho", "Waffle",
    "Tofu", "Bandit", "Maple",
];
/// Brands of cars.
pub const CARS: Words =
    &["Volvo", "Mazda", "Honda", "Toyota", "Fiat", "Skoda", "Tesla", "Subaru", "Kia", "Peugeot", "Renault", "Jeep"];
/// Names of sisters; none of [`NAMES`].
pub const SISTERS: Words = &[
    "Clara", "Nadia", "Ingrid", "Helen", "Lucia", "Mona", "Petra", "Sofia", "Tara", "Vera", "Alma", "Greta", "Julia",
    "Nora",
];
/// What people are allergic to.
pub const ALLERGENS: Words = &[
    "peanuts", "shrimp", "pollen", "gluten", "walnuts", "soy", "kiwi", "latex", "sesame", "celery", "mustard", "wasps",
];
/// Names of doctors.
pub const DOCTORS: Words =
    &["Novak", "Meyer", "Lopez", "Tanaka", "Okafor", "Rossi", "Petrov", "Singh", "Larsen", "Dubois", "Costa", "Weber"];
/// Subjects studied.
pub const SUBJECTS: Words = &[
    "physics",
    "biology",
    "economics",
    "geology",
    "law",
    "medicine",
    "philosophy",
    "math",
    "latin",
    "geography",
    "astronomy",
    "theology",
];
/// Occupations.
pub const JOBS: Words = &[
    "nurse",
    "baker",
    "lawyer",
    "teacher",
    "pilot",
    "plumber",
    "barber",
    "editor",
    "chemist",
    "dentist",
    "waiter",
    "farmer",
    "florist",
    "architect",
    "carpenter",
    "librarian",
];
/// Cities.
pub const CITIES: Words = &[
    "Oslo", "Lima", "Paris", "Tokyo", "Cairo", "Berlin", "Madrid", "Dublin", "Quito", "Prague", "Vienna", "Athens",
    "Nairobi", "Seoul", "Lisbon", "Toronto", "Sydney", "Boston", "Denver", "Austin",
];
/// Gyms.
pub const GYMS: Words = &[
    "Ironworks",
    "Flexzone",
    "Peakfit",
    "Gymbox",
    "Corelab",
    "Liftoff",
    "Sweatbox",
    "Powerhall",
    "Fithaus",
    "Steelbar",
];
/// Musical instruments.
pub const INSTRUMENTS: Words =
    &["guitar", "violin", "piano", "flute", "cello", "clarinet", "trumpet", "harp", "banjo", "ukulele", "oboe", "tuba"];
/// Ways to commute.
pub const TRANSPORTS: Words = &["bus", "tram", "bike", "ferry", "subway", "scooter", "taxi", "skateboard"];
/// Devices that get ordered.
pub const DEVICES: Words =
    &["laptop", "phone", "camera", "tablet", "printer", "headset", "monitor", "keyboard", "speaker", "drone"];
/// Brands of devices.
pub const BRANDS: Words =
    &["Dell", "Nokia", "Sony", "Canon", "Lenovo", "Huawei", "Bosch", "Philips", "Sharp", "Garmin"];
/// Shows that sell tickets.
pub const SHOWS: Words = &["concert", "theater", "circus", "museum", "ballet", "zoo", "stadium", "aquarium"];
/// Occasions of a dinner.
pub const OCCASIONS: Words =
    &["birthday", "anniversary", "farewell", "graduation", "reunion", "wedding", "Easter", "retirement"];
/// Dishes.
pub const DISHES: Words = &[
    "lasagna",
    "risotto",
    "tacos",
    "burritos",
    "ramen",
    "sushi",
    "curry",
    "samosas",
    "moussaka",
    "souvlaki",
    "kimchi",
    "bibimbap",
    "quiche",
    "ratatouille",
    "paella",
    "gazpacho",
];
/// Presents.
pub const PRESENTS: Words =
    &["scarf", "vase", "mug", "puzzle", "lamp", "candle", "kite", "wallet", "necklace", "blanket", "clock", "teapot"];
/// Directions of a trend.
pub const TRENDS: Words = &["rising", "falling", "steady"];
/// Kinds of sport with a distance.
pub const SPORTS: Words = &["running", "swimming", "cycling", "rowing", "hiking", "skating"];
/// What work is mostly about.
pub const WORK_FOCUSES: Words = &["hiring", "training", "budgets", "planning", "safety", "reports"];
/// What somebody mostly does at home.
pub const HOME_FOCUSES: Words = &["gardening", "painting", "sewing", "baking", "repairs", "pottery"];
/// Kitchens of the world.
pub const CUISINES: Words = &["Italian", "Mexican", "Japanese", "Indian", "Greek", "Korean", "French", "Spanish"];
/// Kinds of music.
pub const MUSIC: Words = &["jazz", "rock", "folk", "opera", "techno", "metal", "soul", "salsa"];
/// Drinks.
pub const DRINKS: Words = &["tea", "coffee", "juice", "cocoa", "lemonade", "milk"];
/// Kinds of books.
pub const BOOKS: Words = &["crime", "poetry", "fantasy", "romance", "comics", "science"];
/// Seasons.
pub const SEASONS: Words = &["winter", "summer", "spring", "autumn"];
/// Months as they are written in dates.
pub const MONTHS: Words = &[
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// What a reader answers who found no candidate.
pub const UNKNOWN: &str = "unknown";

/// All lists whose members can answer a question.
const ANSWER_LISTS: &[Words] = &[
    DOGS,
    CARS,
    SISTERS,
    ALLERGENS,
    DOCTORS,
    SUBJECTS,
    JOBS,
    CITIES,
    GYMS,
    INSTRUMENTS,
    TRANSPORTS,
    DISHES,
    PRESENTS,
    TRENDS,
    WORK_FOCUSES,
    HOME_FOCUSES,
    CUISINES,
    MUSIC,
    DRINKS,
    BOOKS,
    SEASONS,
];

/// The type of an answer, as far as its own words show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// A member of one of the lists.
    Listed(Words),
    /// A month and a day: `March 5`.
    Date,
    /// A sum: `45 dollars`.
    Price,
}

impl ValueType {
    /// The type that `value` has, `None` for words outside the world's lists.
    pub fn of(value: &str) -> Option<Self> {
        if let Some(list) = ANSWER_LISTS.iter().find(|list| list.contains(&value)) {
            return Some(Self::Listed(list));
        }
        let words: Vec<&str> = value.split(' ').collect();
        match words[..] {
            [first, second] if is_date(first, second) => Some(Self::Date),
            [first, second] if is_price(first, second) => Some(Self::Price),
            _ => None,
        }
    }

    /// The first value of this type in `text` and the phrase that it stands in.
    pub fn first_in(self, text: &str) -> Option<(String, &str)> {
        phrases(text).find_map(|phrase| Some((self.first_in_phrase(phrase)?, phrase)))
    }

    fn first_in_phrase(self, phrase: &str) -> Option<String> {
        match self {
            Self::Listed(list) => words(phrase).find(|word| list.contains(word)).map(str::to_owned),
            Self::Date => first_pair(phrase, is_date),
            Self::Price => first_pair(phrase, is_price),
        }
    }
}

fn first_pair(phrase: &str, matches: fn(&str, &str) -> bool) -> Option<String> {
    let words: Vec<&str> = words(phrase).collect();
    words.windows(2).find(|pair| matches(pair[0], pair[1])).map(|pair| pair.join(" "))
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

fn is_date(first: &str, second: &str) -> bool {
    MONTHS.contains(&first) && is_number(second)
}

fn is_price(first: &str, second: &str) -> bool {
    is_number(first) && second == "dollars"
}

/// The words of a text without punctuation, in order.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// The text between one punctuation mark or line end and the next, without spaces at its ends: a value never crosses one.
fn phrases(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != ' ').map(str::trim)
}

/// True when the words of `value` stand next to each other in `text`, with nothing but spaces between them.
pub fn mentions(text: &str, value: &str) -> bool {
    phrase_with(text, value).is_some()
}

/// The first phrase of `text` that [`mentions`] `value`.
pub fn phrase_with<'a>(text: &'a str, value: &str) -> Option<&'a str> {
    let value: Vec<&str> = words(value).collect();
    let says_it = |phrase: &&str| {
        let words: Vec<&str> = words(phrase).collect();
        words.windows(value.len()).any(|window| window == value)
    };
    (!value.is_empty()).then(|| phrases(text).find(says_it)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn lists_do_not_overlap() {
        let mut seen = BTreeSet::new();
        for word in
            ANSWER_LISTS.iter().copied().chain([NAMES, DEVICES, BRANDS, SHOWS, OCCASIONS, SPORTS, MONTHS]).flatten()
        {
            assert!(seen.insert(*word), "{word} is in two lists");
        }
    }

    #[test]
    fn values_show_their_type() {
        assert_eq!(ValueType::of("Oslo"), Some(ValueType::Listed(CITIES)));
        assert_eq!(ValueType::of("March 5"), Some(ValueType::Date));
        assert_eq!(ValueType::of("45 dollars"), Some(ValueType::Price));
        assert_eq!(ValueType::of("seven"), None);
        let found = |kind: ValueType, text| kind.first_in(text).map(|(value, phrase)| format!("{value} in {phrase}"));
        assert_eq!(found(ValueType::Date, "On 2024-03-01, then March 5."), Some("March 5 in then March 5".into()));
        assert_eq!(found(ValueType::Price, "12 days, 45 dollars"), Some("45 dollars in 45 dollars".into()));
        assert_eq!(
            found(ValueType::Listed(CITIES), "Is from Lima to Oslo."),
            Some("Lima in Is from Lima to Oslo".into())
        );
        assert_eq!(ValueType::Listed(CITIES).first_in("nowhere"), None);
    }

    #[test]
    fn mentions_matches_whole_words_only() {
        assert!(mentions("arrived on March 5, fine", "March 5"));
        assert!(!mentions("arrived on March 15", "March 1"));
        assert!(!mentions("the business", "bus"));
        assert!(!mentions("in March\n5 facts", "March 5"));
        assert_eq!(phrase_with("m1 user: it came on March 5, fine", "March 5"), Some("it came on March 5"));
    }
}
