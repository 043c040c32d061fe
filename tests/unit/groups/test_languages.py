"""The language of a document, by the name that PostgreSQL has for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.consumers.groups.documents import languages
from offsetzero.store.languages import LANGUAGES, SIMPLE

# Article 1 of the Universal Declaration of Human Rights.
ARTICLE = {
    "arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا.",
    "danish": "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med fornuft.",
    "dutch": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren.",
    "english": "All human beings are born free and equal in dignity and rights.",
    "finnish": "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan.",
    "french": "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "german": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "hungarian": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van.",
    "indonesian": "Semua orang dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama.",
    "italian": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti.",
    "portuguese": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos.",
    "romanian": "Toate ființele umane se nasc libere și egale în demnitate și în drepturi.",
    "russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "serbian": "Sva ljudska bića rađaju se slobodna i jednaka u dostojanstvu i pravima.",
    "simple": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.",  # Polish
    "spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
    "swedish": "Alla människor är födda fria och lika i värde och rättigheter.",
    "turkish": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
}


@pytest.mark.parametrize("language", ARTICLE)
def test_one_sentence_tells_the_language(language: str) -> None:
    assert languages.detect([ARTICLE[language]]) == language


@pytest.mark.parametrize(
    "text", ["", "12 34 56.7", "x", "Expenses", "日本国民は、正当に選挙された国会における代表者を通じて行動し"]
)
def test_what_tells_no_language_is_simple(text: str) -> None:
    assert languages.detect([text]) == SIMPLE
    assert languages.detect([]) == SIMPLE


def test_a_title_page_in_another_language_does_not_decide() -> None:
    pages = ["International Report", "", *[ARTICLE["german"] * 5] * 9]
    assert languages.detect(pages) == "german"
    assert languages.detect([f"International Report\n{ARTICLE['french'] * 100}"]) == "french"


@given(st.lists(st.text(max_size=100), max_size=5))
def test_any_text_has_an_answer(pages: list[str]) -> None:
    assert languages.detect(pages) in {SIMPLE, *LANGUAGES}
