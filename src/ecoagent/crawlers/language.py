"""Language of a short text by its script and its words; says nothing when it cannot tell.

A statistical model calls two words of technical English Dutch or Catalan. Here only what a text says
counts: letters of a script, function words, and words that documentation of tools is made of.
"""

from __future__ import annotations

import re
from collections import Counter

_WORDS: dict[str, str] = {
    "en": "the a an of to and in for with that this is are was were be been your you we our from by on or "
    "it its can could may might must into when where while which who using use used if then else at "
    "as will would should has have had not all any each every other another new more most out up "
    "over under about after before between through via per only also such than there their them "
    "these those one two get gets make",
    "pt": "o os as um uma uns umas do da dos das no na nos nas ao aos em para com que por pelo pela pelos "
    "é são foi ser está você seu sua seus suas não mas mais ou também já quando como mensagem "
    "mensagens dados enviar envia recebe receber eventos trabalhe usuário usuários criar cria obter "
    "obtém buscar busca lista listar através documento documentos assinatura arquivo grupo grupos "
    "instância conta integração e atualiza atualizar adiciona adicionar deleta deletar exclui "
    "excluir remover recuperar publicar gera gerar usando bloqueia arquiva marca assinar específico "
    "específica todos todas todo toda novo nova nome perfil contato contatos conversa conversas "
    "pasta foto uso modelos disponíveis",
    "es": "el la los las un una unos unas del al en para con que por es son fue ser está usted su sus no "
    "pero más o también cuando como mensaje mensajes datos enviar envía recibir recibe eventos "
    "usuario usuarios crear crea obtener obtiene buscar busca lista listar través documento archivo "
    "grupo cuenta integración y este esta actualiza actualizar elimina eliminar agrega agregar "
    "añade generar usando específico específica todos todas nuevo nueva nombre perfil contacto "
    "tarea proyecto carpeta cliente factura",
    "fr": "le la les un une des du de en pour avec que qui par au aux est sont vous votre vos ne pas mais "
    "plus ou et dans sur cette ce ces il elle nous leur leurs être créer crée envoyer envoie "
    "recevoir données utilisateur utilisateurs récupère récupérer outil fichier liste depuis "
    "lorsque supprime supprimer ajoute ajouter met jour nouveau nouvelle nom tous toutes tâche "
    "projet dossier facture système génère",
    "de": "der die das ein eine einen einem einer des dem den im zum zur für mit dass von zu ist sind "
    "wird werden sie ihr ihre nicht wie mehr oder und auf aus bei nach über durch wenn kann eines "
    "nachricht nachrichten daten senden sendet empfangen benutzer erstellt erstellen abrufen ruft "
    "datei liste werkzeug löscht löschen aktualisiert aktualisieren fügt hinzu neue neuen neuer "
    "alle aufgabe projekt ordner kunde kunden rechnung kanal",
    "it": "il lo gli i un una uno del dello della dei degli delle nel nella in per con che da dal dalla "
    "al alla è sono tuo suo non come più o e di questo questa quando messaggio messaggi dati "
    "inviare invia ricevere utente utenti creare crea ottenere ottiene cerca strumento elenco "
    "attraverso elimina eliminare aggiorna aggiornare aggiunge aggiungere nuovo nuova nome tutti "
    "tutte attività progetto cartella cliente fattura genera",
    "nl": "de het een van en voor met dat dit is zijn op aan naar uit bij door je uw niet maar meer of "
    "ook als wanneer hoe bericht berichten gegevens verzenden verstuurt ontvangen gebruiker "
    "gebruikers maken maakt ophalen haalt bestand lijst gereedschap om te verwijdert verwijderen "
    "werkt voegt toe nieuw nieuwe alle naam taak klant klanten factuur",
    "pl": "i w na do z ze że się nie jest są dla przez od po jak lub oraz ten ta to wiadomość dane "
    "użytkownik wysyła tworzy pobiera lista narzędzie",
    "tr": "ve bir bu için ile olan olarak da de ya veya daha çok kullanıcı veri mesaj gönder oluştur listele",
    "id": "yang dan di ke dari untuk dengan ini itu pada adalah atau tidak dalam akan pengguna pesan "
    "mengirim membuat mengambil daftar",
    "vi": "và của là các cho với trong được không một những người dùng tin nhắn dữ liệu gửi tạo",
}
_TECHNICAL = (
    "access account action activate activities activity add address agent analyze api app append "
    "approve archive assign asset assignment attachment authentication base basic board body bucket "
    "bulk business calculate call campaign cancel card cart categories category channel chat "
    "chatbot check checklist clear click client close cloud code collection column comment company "
    "complete config connect consume contact content conversation convert copy count coupon create "
    "creates custom customer customers database dataset date deactivate deal default delete deletes "
    "department description details device disable discount document documents domain download "
    "draft duplicate edit email emails enable end entry error event events execute expense export "
    "extract fetch field file files filter find folder form forms function generate global group "
    "groups handle hash head history host id image images import incident index information input "
    "insert instance integrate interact invoice invite issue item items job key keyword label "
    "language latest launch lead leave left limit link list lists load location log login mail "
    "manage many matching media member members memory merge message messages metadata metric model "
    "models monitor move multiple name names network node nodes note number object offer open "
    "operation opportunity order orders organization output owner page pages parameters parse "
    "password path pause payment permanently person phone pipeline place play playlist poll post "
    "posts price process product products profile project projects promote publish pull push "
    "queries query question queue read receive record records refresh region release remove rename "
    "reopen replace reply report repository request requests reset resource response restart "
    "restore result results resume retrieve return returns review role room row rows rule run runs "
    "scan schedule score scrape script search segment select send sends sequence server service "
    "session set settings share sheet shipment shipping show single site sites snippet source space "
    "spreadsheet sprint start starts state status step stop storage store stores string subscriber "
    "subscription summary survey switch sync table tables tag tags target task tasks team template "
    "text thread ticket tickets time tool track transaction transform translate trigger triggers "
    "type unarchive update updates upload upsert url user username users value values variable "
    "vector verify version video videos view wait watch web webhook webhooks website word work "
    "workflow workspace write your zone answer ask browser browse data online questions useful "
    "wrapper weather whether connection simple simply tools analytics embeddings embed chain"
)
_SCRIPTS: tuple[tuple[str, str], ...] = (
    ("ja", r"[\u3040-\u30ff]"),
    ("ko", r"[\uac00-\ud7af\u1100-\u11ff]"),
    ("zh", r"[\u4e00-\u9fff]"),
    ("ru", r"[\u0400-\u04ff]"),
    ("ar", r"[\u0600-\u06ff]"),
    ("he", r"[\u0590-\u05ff]"),
    ("el", r"[\u0370-\u03ff]"),
    ("th", r"[\u0e00-\u0e7f]"),
    ("hi", r"[\u0900-\u097f]"),
)
_MARKS: dict[str, str] = {
    "pt": "ãõ",
    "es": "ñ¿¡",
    "de": "ßäöü",
    "fr": "œèêù",
    "pl": "ąęłśźż",
    "tr": "ğış",
    "vi": "ơưđạếộ",
}
_TOKEN = re.compile(r"[^\W\d_]+")
_NOT_WORDS = re.compile(r"https?://\S+|`[^`]*`|\{[^{}]*\}|\b\w+(?:[._]\w+)+\b")
_LISTS = {language: frozenset(words.split()) for language, words in _WORDS.items()}
_SHARED = frozenset(w for w, n in Counter(w for words in _LISTS.values() for w in words).items() if n > 1)
"""Words that several of the languages have: too weak to count alone."""
_ENGLISH = frozenset(_TECHNICAL.split())
LEAD = 1.0
"""By how much the best language must lead the second."""
LEAST, LEAST_OTHER = 1.0, 2.0
"""Score that English, and any other language, must reach: calling English foreign is the worse error."""


def detect_language(text: str) -> str | None:
    """ISO 639-1 code of ``text``, or ``None`` where its words do not decide.

    A script other than Latin decides where it has most of the letters. Else distinct function words
    of eleven languages count one, half where several languages share them; letters that only one
    language has count one; words of technical English count one for English unless another
    language's list has them. Addresses, code and names of variables are not looked at.
    """
    plain = _NOT_WORDS.sub(" ", text)
    script = _script_of(plain)
    if script is not None:
        return script
    words = _TOKEN.findall(plain)
    tokens = {w.lower() for w in words}
    lowered = plain.lower()
    scores: dict[str, float] = {}
    for language, listed in _LISTS.items():
        scores[language] = sum(0.5 if h in _SHARED else 1.0 for h in tokens & listed)
        if any(mark in lowered for mark in _MARKS.get(language, "")):
            scores[language] += 1.0
    scores["en"] += len((tokens & _ENGLISH) - frozenset().union(*(_LISTS[k] for k in _LISTS if k != "en")))
    ranked = sorted(scores.items(), key=lambda s: (-s[1], s[0]))
    (best, top), (_, second) = ranked[0], ranked[1]
    least = LEAST if best == "en" else LEAST_OTHER
    return best if top >= least and top - second >= LEAD else None


def _script_of(text: str) -> str | None:
    letters = sum(1 for c in text if c.isalpha())
    for language, pattern in _SCRIPTS:
        found = len(re.findall(pattern, text))
        # One character of Chinese or Korean says as much as a few letters.
        weight = 3 if language in ("ja", "ko", "zh") else 1
        if found and found * weight * 2 > letters:
            return language
    return None
