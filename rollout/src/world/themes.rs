//! Text templates of what only the upper levels tell (trends of tracks, lasting preferences of the profile), of the
//! instructions that override them, of small talk and of questions that need no memory.
//!
//! What the upper levels say is drawn from several lower items and named by none of them: the records speak of risotto,
//! the profile of Italian food.
//!
//! Placeholders: `{v}` the value, `{x}` the sport, `{n}` a friend's name, `{a}` and `{b}` distances, `{p}` and `{q}` months.

use super::lexicon::Words;
use super::slots::Exchange;

/// A focus of work or home: its name and the events that it is drawn from, as record and as message.
pub struct Focus {
    /// The name, a member of the lexicon's list.
    pub name: &'static str,
    /// Two events.
    pub events: [Event; 2],
}

/// One event as the record and as the message has it.
pub struct Event {
    /// The record's text.
    pub record: &'static str,
    /// What was said.
    pub message: Exchange,
}

const fn event(record: &'static str, said: &'static str, reply: &'static str) -> Event {
    Event {
        record,
        message: (said, reply),
    }
}

/// What work is mostly about; the questions' words are `WORK_QUESTIONS`.
pub const WORK_FOCUSES: &[Focus] = &[
    Focus {
        name: "hiring",
        events: [
            event(
                "Interviewed two candidates.",
                "I interviewed two candidates before noon.",
                "I hope one of them fits.",
            ),
            event(
                "Read a pile of resumes.",
                "I read a pile of resumes until my eyes hurt.",
                "Rest the eyes now.",
            ),
        ],
    },
    Focus {
        name: "training",
        events: [
            event(
                "Showed three newcomers around.",
                "I showed three newcomers around.",
                "They will remember it.",
            ),
            event(
                "Held a workshop for newcomers.",
                "I held a workshop and lost my voice.",
                "Warm water helps.",
            ),
        ],
    },
    Focus {
        name: "budgets",
        events: [
            event(
                "Compared costs of suppliers.",
                "I compared the offers of five suppliers.",
                "One must be best.",
            ),
            event(
                "Cut the spending by half.",
                "I cut our spending by half, nobody cheered.",
                "They will see why.",
            ),
        ],
    },
    Focus {
        name: "planning",
        events: [
            event(
                "Moved tasks on the big board.",
                "I moved tasks on the big board all day.",
                "Order calms the mind.",
            ),
            event(
                "Set dates for next quarter.",
                "I set the dates for the next quarter.",
                "Now all know the dates.",
            ),
        ],
    },
    Focus {
        name: "safety",
        events: [
            event(
                "Checked all fire exits.",
                "I checked all fire exits with a torch.",
                "Good to know they are free.",
            ),
            event(
                "Put signs on the stairs.",
                "I put yellow signs on the stairs.",
                "Nobody will slip there.",
            ),
        ],
    },
    Focus {
        name: "reports",
        events: [
            event(
                "Typed forty pages for the boss.",
                "I typed forty pages for the boss.",
                "Forty pages, well done.",
            ),
            event(
                "Made charts from numbers.",
                "I made charts from endless numbers.",
                "Charts make numbers speak.",
            ),
        ],
    },
];

/// Questions that the work track answers.
pub const WORK_QUESTIONS: Words = &[
    "What is my work mostly about lately?",
    "What is my main focus at work?",
    "What takes most of my time at work?",
    "What is the main topic of my work lately?",
    "Tell me the main focus of my work.",
];

/// What somebody mostly does at home; the questions' words are `HOME_QUESTIONS`.
pub const HOME_FOCUSES: &[Focus] = &[
    Focus {
        name: "gardening",
        events: [
            event(
                "Planted tomatoes on the balcony.",
                "I planted tomatoes on the balcony.",
                "They love the sun.",
            ),
            event(
                "Bought seeds and soil.",
                "I carried seeds and soil up the stairs.",
                "That was heavy.",
            ),
        ],
    },
    Focus {
        name: "painting",
        events: [
            event(
                "Put blue color on the wall.",
                "I put blue color on the hall wall.",
                "Blue is a calm color.",
            ),
            event(
                "Bought brushes and rollers.",
                "I got brushes and rollers for cheap.",
                "Wash them after use.",
            ),
        ],
    },
    Focus {
        name: "sewing",
        events: [
            event(
                "Stitched a curtain.",
                "I stitched a curtain until midnight.",
                "It must look good by now.",
            ),
            event(
                "Bought thread and needles.",
                "I got thread and needles in ten colors.",
                "Ten is plenty.",
            ),
        ],
    },
    Focus {
        name: "baking",
        events: [
            event(
                "Made a sourdough loaf.",
                "I made a sourdough loaf with a dark crust.",
                "A dark crust is best.",
            ),
            event(
                "Bought flour and yeast.",
                "I got flour and yeast in big bags.",
                "Keep the bags dry.",
            ),
        ],
    },
    Focus {
        name: "repairs",
        events: [
            event(
                "Fixed the leaking tap.",
                "I fixed the leaking tap at last.",
                "No more drops at night.",
            ),
            event(
                "Bought screws and a drill.",
                "I got screws and a loud drill.",
                "Mind the neighbors.",
            ),
        ],
    },
    Focus {
        name: "pottery",
        events: [
            event(
                "Shaped two clay bowls.",
                "I shaped two clay bowls, both crooked.",
                "Crooked bowls have charm.",
            ),
            event(
                "Bought glaze and clay.",
                "I got glaze and a sack of clay.",
                "That will last for months.",
            ),
        ],
    },
];

/// Questions that the home track answers.
pub const HOME_QUESTIONS: Words = &[
    "What do I mostly do at home lately?",
    "What is my main hobby at home?",
    "What is the main thing that I do at home?",
    "What takes most of my time at home?",
    "Tell me my main hobby at home.",
];

/// Records of a distance, with `{x}` the sport, `{a}` the distance and `{p}` the month.
pub const DISTANCE_RECORDS: Words = &["{x} round of {a} km in {p}.", "Did {a} km of {x} in {p}."];

/// Messages behind them.
pub const DISTANCE_MESSAGES: &[Exchange] = &[
    (
        "My {x} round was {a} km, my legs feel it.",
        "Legs need a rest after {x}.",
    ),
    ("I did {a} km of {x} before noon.", "Nice {x}, drink some water."),
];

/// Questions that the fitness track answers.
pub const FITNESS_QUESTIONS: Words = &[
    "How does my {x} develop lately?",
    "What is the trend of my {x}?",
    "How is my {x} distance changing?",
    "Which way does my {x} distance go?",
    "Tell me the trend of my {x} distance.",
];

/// A domain of taste.
pub struct Taste {
    /// The possible values, each with the event that supports it.
    pub values: &'static [(&'static str, Event)],
    /// The track whose narrative mentions the supporting event.
    pub track: &'static str,
    /// The profile's sentence.
    pub profile: &'static str,
    /// Questions that the profile answers.
    pub questions: Words,
    /// A one-off event that must not become a preference: record and message.
    pub one_off: Event,
    /// An instruction that wins over the preference: record and message.
    pub instruction: Event,
    /// Questions that the instruction answers.
    pub instruction_questions: Words,
}

/// The tastes.
pub const TASTES: &[Taste] = &[
    Taste {
        values: &[
            (
                "Italian",
                event(
                    "Made risotto on a Sunday.",
                    "I made risotto for myself.",
                    "Sounds tasty.",
                ),
            ),
            (
                "Mexican",
                event(
                    "Made tacos on a Sunday.",
                    "I made tacos for myself.",
                    "Sounds tasty.",
                ),
            ),
            (
                "Japanese",
                event(
                    "Made sushi on a Sunday.",
                    "I made sushi for myself.",
                    "Sounds tasty.",
                ),
            ),
            (
                "Indian",
                event(
                    "Made samosas on a Sunday.",
                    "I made samosas for myself.",
                    "Sounds tasty.",
                ),
            ),
            (
                "Greek",
                event(
                    "Made moussaka on a Sunday.",
                    "I made moussaka for myself.",
                    "Sounds tasty.",
                ),
            ),
            (
                "Korean",
                event(
                    "Made bibimbap on a Sunday.",
                    "I made bibimbap for myself.",
                    "Sounds tasty.",
                ),
            ),
            (
                "French",
                event(
                    "Made quiche on a Sunday.",
                    "I made quiche for myself.",
                    "Sounds tasty.",
                ),
            ),
            (
                "Spanish",
                event(
                    "Made paella on a Sunday.",
                    "I made paella for myself.",
                    "Sounds tasty.",
                ),
            ),
        ],
        track: "home.md",
        profile: "Favorite food is {v}.",
        questions: &[
            "What is my favorite food?",
            "Which food do I like best?",
            "What food do I love in general?",
            "Tell me my favorite food.",
        ],
        one_off: event(
            "Tried {v} food at a party.",
            "The {v} food at the party was good.",
            "Parties have good food.",
        ),
        instruction: event(
            "Always book {v} food for guests.",
            "Please remember, only {v} places when we have company.",
            "I will remember that for good.",
        ),
        instruction_questions: &[
            "Which food should you book for my guests?",
            "What food must you book for guests?",
            "Tell me the food to book for my guests.",
            "When you book food for my guests, which one?",
        ],
    },
    Taste {
        values: &[
            (
                "jazz",
                event(
                    "Went to a saxophone night.",
                    "I stayed at the saxophone night until two.",
                    "What a night.",
                ),
            ),
            (
                "rock",
                event(
                    "Went to a loud band night.",
                    "The loud band shook the whole hall.",
                    "Mind your ears.",
                ),
            ),
            (
                "folk",
                event(
                    "Went to a fiddle evening.",
                    "I clapped along at the fiddle evening.",
                    "A cosy evening.",
                ),
            ),
            (
                "opera",
                event(
                    "Went to an aria evening.",
                    "I cried at the aria evening.",
                    "Tears are fine there.",
                ),
            ),
            (
                "techno",
                event(
                    "Went to a warehouse rave.",
                    "I danced at a warehouse rave till dawn.",
                    "Sleep well.",
                ),
            ),
            (
                "metal",
                event(
                    "Went to a headbanging night.",
                    "My neck hurts after the headbanging night.",
                    "Poor neck.",
                ),
            ),
            (
                "soul",
                event(
                    "Went to a gospel evening.",
                    "I sang along at the gospel evening.",
                    "Singing heals.",
                ),
            ),
            (
                "salsa",
                event(
                    "Went to a dance night.",
                    "I danced with strangers at the dance night.",
                    "How lively.",
                ),
            ),
        ],
        track: "work.md",
        profile: "Favorite music is {v}.",
        questions: &[
            "What is my favorite music?",
            "Which music do I like best?",
            "What music do I love in general?",
            "Tell me my favorite music.",
        ],
        one_off: event(
            "Heard {v} music at a party.",
            "They had {v} music at the party, I danced.",
            "Party music makes you move.",
        ),
        instruction: event(
            "Always play {v} music in the morning.",
            "Please wake me up with {v} songs from today on.",
            "I will do that each day.",
        ),
        instruction_questions: &[
            "Which music should you play in the morning?",
            "What music must you play me each morning?",
            "Tell me the music to play in the morning.",
            "When you play music in the morning, which one?",
        ],
    },
    Taste {
        values: &[
            (
                "tea",
                event(
                    "Had a cup of oolong after lunch.",
                    "A cup of oolong saved my day.",
                    "Small things help.",
                ),
            ),
            (
                "coffee",
                event(
                    "Had an espresso after lunch.",
                    "An espresso saved my day.",
                    "Small things help.",
                ),
            ),
            (
                "juice",
                event(
                    "Had a glass of squeezed fruit.",
                    "A glass of squeezed fruit saved my day.",
                    "So fresh.",
                ),
            ),
            (
                "cocoa",
                event(
                    "Had a cup with marshmallows.",
                    "A cup with marshmallows saved my day.",
                    "So sweet.",
                ),
            ),
            (
                "lemonade",
                event(
                    "Had a fizzy citrus glass.",
                    "A fizzy citrus glass saved my day.",
                    "So fresh.",
                ),
            ),
            (
                "milk",
                event(
                    "Had a white foamy glass.",
                    "A white foamy glass saved my day.",
                    "So creamy.",
                ),
            ),
        ],
        track: "work.md",
        profile: "Favorite drink is {v}.",
        questions: &[
            "What is my favorite drink?",
            "Which drink do I like best?",
            "What drink do I love in general?",
            "Tell me my favorite drink.",
        ],
        one_off: event(
            "Got {v} as a drink at a party.",
            "They gave me {v} as a drink at the party.",
            "A party drink to remember.",
        ),
        instruction: event(
            "Always order {v} as drink for meetings.",
            "Please get only {v} when people come to talk.",
            "I will get it each time.",
        ),
        instruction_questions: &[
            "Which drink should you order for my meetings?",
            "What drink must you order for meetings?",
            "Tell me the drink to order for my meetings.",
            "When you order a drink for my meetings, which one?",
        ],
    },
    Taste {
        values: &[
            (
                "crime",
                event(
                    "Finished a detective novel.",
                    "I finished a detective novel in bed.",
                    "Who did it?",
                ),
            ),
            (
                "poetry",
                event(
                    "Read rhymes before sleep.",
                    "I read rhymes before sleep.",
                    "Rhymes bring sleep.",
                ),
            ),
            (
                "fantasy",
                event(
                    "Finished a dragon saga.",
                    "I finished a dragon saga in bed.",
                    "Long live dragons.",
                ),
            ),
            (
                "romance",
                event(
                    "Read a love novel in bed.",
                    "I read a love novel in one go.",
                    "Love always wins.",
                ),
            ),
            (
                "comics",
                event(
                    "Bought a superhero issue.",
                    "I got a superhero issue, so colorful.",
                    "Pow, as they say.",
                ),
            ),
            (
                "science",
                event(
                    "Read about stars and atoms.",
                    "I read about stars and atoms.",
                    "Big and small things.",
                ),
            ),
        ],
        track: "home.md",
        profile: "Favorite books are {v}.",
        questions: &[
            "What are my favorite books?",
            "Which books do I like best?",
            "What books do I love in general?",
            "Tell me my favorite books.",
        ],
        one_off: event(
            "Won {v} books at a party.",
            "I won {v} books at the party raffle.",
            "A party with prizes, books even.",
        ),
        instruction: event(
            "Only recommend {v} books for trips.",
            "Please pack me just {v} when I travel.",
            "I will pack just that.",
        ),
        instruction_questions: &[
            "Which books should you recommend for my trips?",
            "What books must you recommend for trips?",
            "Tell me the books to recommend for my trips.",
            "When you recommend books for my trips, which ones?",
        ],
    },
    Taste {
        values: &[
            (
                "winter",
                event(
                    "Built a snowman with friends.",
                    "We built a snowman with a hat.",
                    "Snowmen need hats.",
                ),
            ),
            (
                "summer",
                event(
                    "Went surfing at the beach.",
                    "I fell off the board all day.",
                    "The beach is soft.",
                ),
            ),
            (
                "spring",
                event(
                    "Photographed cherry blossoms.",
                    "I took photos of cherry blossoms.",
                    "They fall so fast.",
                ),
            ),
            (
                "autumn",
                event(
                    "Raked leaves with friends.",
                    "We raked leaves into a big pile.",
                    "And jumped in, I hope.",
                ),
            ),
        ],
        track: "fitness.md",
        profile: "Favorite season is {v}.",
        questions: &[
            "What is my favorite season?",
            "Which season do I like best?",
            "What season do I love in general?",
            "Tell me my favorite season.",
        ],
        one_off: event(
            "Talked of {v} as a season at a party.",
            "At the party all spoke of {v}, what a season.",
            "A party needs talk of a season.",
        ),
        instruction: event(
            "Plan days off in the season {v} only.",
            "Please put my free weeks in {v} from now on.",
            "I will put them there.",
        ),
        instruction_questions: &[
            "In which season should you plan my days off?",
            "What season must you plan days off in?",
            "Tell me the season to plan my days off in.",
            "When you plan my days off, which season?",
        ],
    },
];

/// Talk that leads to no record.
pub const SMALL_TALK: &[Exchange] = &[
    (
        "What a rainy week, my umbrella gave up.",
        "A strong umbrella is worth it.",
    ),
    (
        "The elevator is broken again, so many stairs.",
        "Stairs keep you fit.",
    ),
    (
        "I cannot find my keys anywhere today.",
        "Look in yesterday's coat.",
    ),
    (
        "Traffic was awful, I sat there for an hour.",
        "A podcast helps against boredom.",
    ),
    (
        "{n} called and we talked for two hours.",
        "Old friends always have news.",
    ),
    (
        "I slept badly, the moon was so bright.",
        "Dark curtains can help.",
    ),
    (
        "The sunset was bright red tonight.",
        "A picture of it would be nice.",
    ),
    (
        "My heating bill is too high again.",
        "Maybe another contract is cheaper.",
    ),
    (
        "I dropped an egg on the kitchen floor.",
        "Eggs are hard to clean up.",
    ),
    (
        "{n} tells the same joke every week.",
        "At least it is a short joke.",
    ),
    ("The shop ran out of bread this evening.", "Go early next time."),
    ("I won a game of chess against {n}.", "Checkmate feels great."),
    (
        "It is so hot, the fan runs all day.",
        "Keep the windows closed at noon.",
    ),
    ("A bird sat on my window for an hour.", "Maybe it likes you."),
    (
        "I forgot my password for the third time.",
        "A notebook in a safe place helps.",
    ),
    ("My plant has a new leaf, hooray.", "Light and water did it."),
    ("The movie last night was far too long.", "Three hours is a lot."),
    ("I need a haircut, my hair is wild.", "Wild hair has style too."),
];

/// Questions that need no memory, each with its answers.
pub const NO_MEMORY: &[(&str, &str)] = &[
    ("How many days are in a week?", "seven"),
    ("How many months are in a year?", "twelve"),
    ("How many minutes are in an hour?", "sixty"),
    ("How many legs has a spider?", "eight"),
    ("How many wheels has a tricycle?", "three"),
    ("What is two plus three?", "five"),
    ("What is one plus one?", "two"),
    ("What is three times three?", "nine"),
    ("What is ten minus six?", "four"),
    ("What is the opposite of hot?", "cold"),
    ("What is the opposite of big?", "small"),
    ("What is the opposite of up?", "down"),
    ("What is the opposite of early?", "late"),
    ("What color is snow?", "white"),
    ("What color is grass?", "green"),
    ("What color is the sky?", "blue"),
    ("Which weekday comes after Monday?", "Tuesday"),
    ("Which weekday comes after Friday?", "Saturday"),
    ("What is frozen water?", "ice"),
    ("What do bees make?", "honey"),
];
