//! Text templates of lasting preferences, which only the profile tells, of one-off events beside them and of the instructions
//! that override them.
//!
//! The profile names what the records only hint at: they speak of risotto, it of Italian food. Placeholder: `{v}`, the value.

use super::lexicon::Words;
use super::themes::{Event, event};

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
            ("Italian", event("Made risotto on a Sunday.", "I made risotto for myself.", "Sounds tasty.")),
            ("Mexican", event("Made tacos on a Sunday.", "I made tacos for myself.", "Sounds tasty.")),
            ("Japanese", event("Made sushi on a Sunday.", "I made sushi for myself.", "Sounds tasty.")),
            ("Indian", event("Made samosas on a Sunday.", "I made samosas for myself.", "Sounds tasty.")),
            ("Greek", event("Made moussaka on a Sunday.", "I made moussaka for myself.", "Sounds tasty.")),
            ("Korean", event("Made bibimbap on a Sunday.", "I made bibimbap for myself.", "Sounds tasty.")),
            ("French", event("Made quiche on a Sunday.", "I made quiche for myself.", "Sounds tasty.")),
            ("Spanish", event("Made paella on a Sunday.", "I made paella for myself.", "Sounds tasty.")),
        ],
        track: "home.md",
        profile: "Favorite food is {v}.",
        questions: &[
            "What is my favorite food?",
            "Which food do I like best?",
            "What food do I love in general?",
            "Tell me my favorite food.",
        ],
        one_off: event("Tried {v} food at a party.", "The {v} food at the party was good.", "Parties have good food."),
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
                event("Went to a saxophone night.", "I stayed at the saxophone night until two.", "What a night."),
            ),
            ("rock", event("Went to a loud band night.", "The loud band shook the whole hall.", "Mind your ears.")),
            ("folk", event("Went to a fiddle evening.", "I clapped along at the fiddle evening.", "A cosy evening.")),
            ("opera", event("Went to an aria evening.", "I cried at the aria evening.", "Tears are fine there.")),
            ("techno", event("Went to a warehouse rave.", "I danced at a warehouse rave till dawn.", "Sleep well.")),
            (
                "metal",
                event("Went to a headbanging night.", "My neck hurts after the headbanging night.", "Poor neck."),
            ),
            ("soul", event("Went to a gospel evening.", "I sang along at the gospel evening.", "Singing heals.")),
            ("salsa", event("Went to a dance night.", "I danced with strangers at the dance night.", "How lively.")),
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
            ("tea", event("Had a cup of oolong after lunch.", "A cup of oolong saved my day.", "Small things help.")),
            ("coffee", event("Had an espresso after lunch.", "An espresso saved my day.", "Small things help.")),
            ("juice", event("Had a glass of squeezed fruit.", "A glass of squeezed fruit saved my day.", "So fresh.")),
            ("cocoa", event("Had a cup with marshmallows.", "A cup with marshmallows saved my day.", "So sweet.")),
            ("lemonade", event("Had a fizzy citrus glass.", "A fizzy citrus glass saved my day.", "So fresh.")),
            ("milk", event("Had a white foamy glass.", "A white foamy glass saved my day.", "So creamy.")),
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
            ("crime", event("Finished a detective novel.", "I finished a detective novel in bed.", "Who did it?")),
            ("poetry", event("Read rhymes before sleep.", "I read rhymes before sleep.", "Rhymes bring sleep.")),
            ("fantasy", event("Finished a dragon saga.", "I finished a dragon saga in bed.", "Long live dragons.")),
            ("romance", event("Read a love novel in bed.", "I read a love novel in one go.", "Love always wins.")),
            (
                "comics",
                event("Bought a superhero issue.", "I got a superhero issue, so colorful.", "Pow, as they say."),
            ),
            ("science", event("Read about stars and atoms.", "I read about stars and atoms.", "Big and small things.")),
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
            ("winter", event("Built a snowman with friends.", "We built a snowman with a hat.", "Snowmen need hats.")),
            ("summer", event("Went surfing at the beach.", "I fell off the board all day.", "The beach is soft.")),
            (
                "spring",
                event("Photographed cherry blossoms.", "I took photos of cherry blossoms.", "They fall so fast."),
            ),
            (
                "autumn",
                event("Raked leaves with friends.", "We raked leaves into a big pile.", "And jumped in, I hope."),
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
