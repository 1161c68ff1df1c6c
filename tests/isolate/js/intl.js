const locales = ['en','de','ja','zh-Hant','ar-EG','fa','th-TH-u-ca-buddhist','hi','he','ko','xx','sr-Latn','ja-u-ca-japanese','en-u-nu-thai','my','km','lo','tr','lt','zh-u-co-pinyin','de-u-co-phonebk','ar-u-ca-islamic-umalqura'];
let n = 0;
for (const l of locales) {
  for (const f of [
    () => new Intl.DateTimeFormat(l,{dateStyle:'full',timeStyle:'full',timeZone:'Asia/Tokyo'}).formatToParts(new Date(0)),
    () => new Intl.DateTimeFormat(l,{era:'long',month:'long',timeZoneName:'longGeneric',timeZone:'America/Los_Angeles'}).format(new Date(0)),
    () => new Intl.DateTimeFormat(l).formatRange(new Date(0), new Date(1e12)),
    () => new Intl.NumberFormat(l,{style:'currency',currency:'CHF',currencyDisplay:'name'}).format(12.5),
    () => new Intl.NumberFormat(l,{style:'unit',unit:'kilometer-per-hour',unitDisplay:'long'}).format(12.5),
    () => new Intl.NumberFormat(l,{notation:'compact'}).format(1e9),
    () => new Intl.Collator(l).compare('a','b'),
    () => new Intl.DisplayNames(l,{type:'region'}).of('CH'),
    () => new Intl.DisplayNames(l,{type:'language'}).of('gsw'),
    () => new Intl.DisplayNames(l,{type:'currency'}).of('JPY'),
    () => new Intl.ListFormat(l).format(['a','b','c']),
    () => new Intl.PluralRules(l,{type:'ordinal'}).select(3),
    () => new Intl.RelativeTimeFormat(l,{numeric:'auto'}).format(-1,'week'),
    () => [...new Intl.Segmenter(l,{granularity:'word'}).segment('สวัสดี ខ្ញុំ ສະບາຍດີ 日本語のテキスト မြန်မာ hello')].length,
    () => [...new Intl.Segmenter(l,{granularity:'sentence'}).segment('A. B. C')].length,
    () => new Intl.Locale(l).maximize().minimize().toString(),
    () => new Intl.Locale(l).getTimeZones?.(), () => new Intl.Locale(l).getWeekInfo?.(),
    () => 'İI'.toLocaleLowerCase(l) + 'ı'.toLocaleUpperCase(l),
    () => Intl.DurationFormat && new Intl.DurationFormat(l).format({hours:1}),
  ]) { try { f(); n++; } catch (e) { if (!(e instanceof RangeError)) console.log(l, String(e)); } }
}
for (const k of ['calendar','collation','currency','numberingSystem','timeZone','unit']) n += Intl.supportedValuesOf(k).length;
for (const z of Intl.supportedValuesOf('timeZone').slice(0,60)) new Date(1e12).toLocaleString('en',{timeZone:z, timeZoneName:'long'});
'ﬀ'.normalize('NFKC'); new Date('2020-01-01 10:00'); new Date().getTimezoneOffset(); Date.parse('Jan 1 2020 PST');
return n > 1000;
