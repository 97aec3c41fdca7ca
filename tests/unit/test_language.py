"""Language of short texts: sentences written here, and English that looks like nothing in particular."""

from __future__ import annotations

import pytest

from ecoagent.crawlers.language import detect_language

SENTENCES = {
    "pt": ["Envia uma mensagem de texto para um contato.", "Cria um novo documento para assinatura."],
    "es": [
        "Envía un mensaje a un canal.",
        "Crea una nueva tarea en el proyecto.",
        "Obtiene los datos del usuario.",
    ],
    "fr": ["Envoie un message à un utilisateur.", "Outil pour créer une facture dans le système."],
    "de": ["Sendet eine Nachricht an einen Kanal.", "Erstellt eine neue Datei im Ordner."],
    "it": ["Invia un messaggio a un utente.", "Crea un nuovo evento nel calendario."],
    "nl": ["Verstuurt een bericht naar een gebruiker.", "Haalt gegevens op uit het systeem."],
    "pl": ["Wysyła wiadomość do użytkownika."],
    "ja": ["ユーザーにメッセージを送信します。"],
    "zh": ["向用户发送消息", "通过 API 查询天气信息"],
    "ko": ["사용자에게 메시지를 보냅니다."],
    "ru": ["Отправляет сообщение пользователю через API."],
}
ENGLISH = [
    "Consume Acme API",
    "Get a row",
    "Create File",
    "Delete many files in a folder",
    "Send SMS via Twilio",
    "Reads and writes sheets",
    "Retrieve data from Elastic Security",
    "Sends data to AWS S3",
    "Starts the workflow on Lemlist event",
    "Useful for when you need to answer questions about the weather",
    "Post a message to the channel of the São Paulo office",
    "Search documents with {query} at https://die.der.das/und/oder",
]


@pytest.mark.parametrize(("language", "text"), [(k, t) for k, texts in SENTENCES.items() for t in texts])
def test_sentences(language: str, text: str) -> None:
    assert detect_language(text) == language


@pytest.mark.parametrize("text", ENGLISH)
def test_short_technical_english(text: str) -> None:
    assert detect_language(text) == "en"


@pytest.mark.parametrize(
    "text", ["", "JWT", "Slack", "42", "No Operation", "https://api.demo.io/v1", "de la"]
)
def test_what_words_do_not_decide_is_not_guessed(text: str) -> None:
    assert detect_language(text) is None
