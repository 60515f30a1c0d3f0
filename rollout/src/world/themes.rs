//! Text templates of what only a track tells, of small talk and of questions that need no memory.
//!
//! What a track says is drawn from several records and named by none of them: the records speak of interviews and
//! resumes, the track of hiring.
//!
//! Placeholders: `{x}` the sport, `{n}` a friend's name, `{a}` and `{b}` distances, `{p}` and `{q}` months.

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

pub(super) const fn event(record: &'static str, said: &'static str, reply: &'static str) -> Event {
    Event { record, message: (said, reply) }
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
            event("Read a pile of resumes.", "I read a pile of resumes until my eyes hurt.", "Rest the eyes now."),
        ],
    },
    Focus {
        name: "training",
        events: [
            event("Showed three newcomers around.", "I showed three newcomers around.", "They will remember it."),
            event("Held a workshop for newcomers.", "I held a workshop and lost my voice.", "Warm water helps."),
        ],
    },
    Focus {
        name: "budgets",
        events: [
            event("Compared costs of suppliers.", "I compared the offers of five suppliers.", "One must be best."),
            event("Cut the spending by half.", "I cut our spending by half, nobody cheered.", "They will see why."),
        ],
    },
    Focus {
        name: "planning",
        events: [
            event("Moved tasks on the big board.", "I moved tasks on the big board all day.", "Order calms the mind."),
            event("Set dates for next quarter.", "I set the dates for the next quarter.", "Now all know the dates."),
        ],
    },
    Focus {
        name: "safety",
        events: [
            event("Checked all fire exits.", "I checked all fire exits with a torch.", "Good to know they are free."),
            event("Put signs on the stairs.", "I put yellow signs on the stairs.", "Nobody will slip there."),
        ],
    },
    Focus {
        name: "reports",
        events: [
            event("Typed forty pages for the boss.", "I typed forty pages for the boss.", "Forty pages, well done."),
            event("Made charts from numbers.", "I made charts from endless numbers.", "Charts make numbers speak."),
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
            event("Planted tomatoes on the balcony.", "I planted tomatoes on the balcony.", "They love the sun."),
            event("Bought seeds and soil.", "I carried seeds and soil up the stairs.", "That was heavy."),
        ],
    },
    Focus {
        name: "painting",
        events: [
            event("Put blue color on the wall.", "I put blue color on the hall wall.", "Blue is a calm color."),
            event("Bought brushes and rollers.", "I got brushes and rollers for cheap.", "Wash them after use."),
        ],
    },
    Focus {
        name: "sewing",
        events: [
            event("Stitched a curtain.", "I stitched a curtain until midnight.", "It must look good by now."),
            event("Bought thread and needles.", "I got thread and needles in ten colors.", "Ten is plenty."),
        ],
    },
    Focus {
        name: "baking",
        events: [
            event("Made a sourdough loaf.", "I made a sourdough loaf with a dark crust.", "A dark crust is best."),
            event("Bought flour and yeast.", "I got flour and yeast in big bags.", "Keep the bags dry."),
        ],
    },
    Focus {
        name: "repairs",
        events: [
            event("Fixed the leaking tap.", "I fixed the leaking tap at last.", "No more drops at night."),
            event("Bought screws and a drill.", "I got screws and a loud drill.", "Mind the neighbors."),
        ],
    },
    Focus {
        name: "pottery",
        events: [
            event("Shaped two clay bowls.", "I shaped two clay bowls, both crooked.", "Crooked bowls have charm."),
            event("Bought glaze and clay.", "I got glaze and a sack of clay.", "That will last for months."),
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
    ("My {x} round was {a} km, my legs feel it.", "Legs need a rest after {x}."),
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

/// Talk that leads to no record.
pub const SMALL_TALK: &[Exchange] = &[
    ("What a rainy week, my umbrella gave up.", "A strong umbrella is worth it."),
    ("The elevator is broken again, so many stairs.", "Stairs keep you fit."),
    ("I cannot find my keys anywhere today.", "Look in yesterday's coat."),
    ("Traffic was awful, I sat there for an hour.", "A podcast helps against boredom."),
    ("{n} called and we talked for two hours.", "Old friends always have news."),
    ("I slept badly, the moon was so bright.", "Dark curtains can help."),
    ("The sunset was bright red tonight.", "A picture of it would be nice."),
    ("My heating bill is too high again.", "Maybe another contract is cheaper."),
    ("I dropped an egg on the kitchen floor.", "Eggs are hard to clean up."),
    ("{n} tells the same joke every week.", "At least it is a short joke."),
    ("The shop ran out of bread this evening.", "Go early next time."),
    ("I won a game of chess against {n}.", "Checkmate feels great."),
    ("It is so hot, the fan runs all day.", "Keep the windows closed at noon."),
    ("A bird sat on my window for an hour.", "Maybe it likes you."),
    ("I forgot my password for the third time.", "A notebook in a safe place helps."),
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
